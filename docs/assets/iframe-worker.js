// Lets search work on pages that were opened as files. Search runs in a web worker, and a browser
// starts none for a file: there, a hidden frame takes its place. The site's bundle looks for the
// name IFrameWorker. (The theme's offline plugin would fetch such a script from elsewhere.)

"use strict";

class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.frame.srcdoc = "<body></body>";
    this.started = new Promise((resolve, reject) => {
      this.frame.onload = () => this.load(url, resolve, reject);
    });
    document.body.append(this.frame);
  }

  load(url, resolve, reject) {
    const inside = this.frame.contentWindow;
    const script = inside.document.createElement("script");
    // What the worker says goes to its listeners here, not to the frame itself.
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    script.onload = () => resolve(inside);
    script.onerror = reject;
    script.src = url;
    inside.document.body.append(script);
  }

  postMessage(data) {
    this.started.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
