// What every page does: ages, keys, buttons, live updates. Without scripts the pages are complete.
import { act } from "./actions.js";
import { keepAges } from "./ages.js";
import { actOnAll } from "./bulk.js";
import { watchGraphs } from "./graph.js";
import { listen } from "./keys.js";
import { follow } from "./live.js";
import { followLog } from "./log.js";

document.documentElement.classList.add("js");
keepAges();
listen();
act();
actOnAll();
watchGraphs(document);
if (document.querySelector("[data-live]")) follow((region) => watchGraphs(region));
followLog();
