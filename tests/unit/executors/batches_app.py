"""The app that the tests of batches run. What a run of the body took, its results say."""

from __future__ import annotations

import asyncio
import os

from longshore import App, Batch, Context, Fail, Retry, Skip, Snooze, current

app = App("batches")


@app.job(batch=Batch(3, wait_s=30))
async def three(numbers: list[int]) -> list[list[int]]:
    return [[number, *numbers] for number in numbers]


@app.job(batch=Batch(100, wait_s=0.01))
async def soon(numbers: list[int]) -> list[list[int]]:
    return [[number, *numbers] for number in numbers]


@app.job(batch=Batch(100, wait_s=30))
async def long_wait(numbers: list[int]) -> list[list[int]]:
    return [[number, *numbers] for number in numbers]


@app.job(batch=Batch(2, wait_s=30, key="tenant"))
async def keyed(words: list[str], tenant: str) -> list[str]:
    return [f"{tenant}: {'+'.join(words)}"] * len(words)


@app.job(batch=Batch(2, wait_s=30, key=lambda given: f"parity={given['number'] % 2}"))
async def by_parity(number: list[int]) -> list[list[int]]:
    return [number] * len(number)


@app.job(batch=Batch(6, wait_s=30))
async def each_its_own(words: list[str]) -> list[str | Exception]:
    ends: dict[str, str | Exception] = {
        "fail": Fail("never again"),
        "retry": Retry("later", after=5),
        "skip": Skip("nothing to do"),
        "snooze": Snooze(60),
        "error": ValueError("bad"),
    }
    return [ends.get(word, word) for word in words]


@app.job(batch=Batch(2, wait_s=30))
async def unpackable(words: list[str]) -> list[object]:
    return [object() if word == "odd" else word for word in words]


@app.job(batch=Batch(2, wait_s=30), fail_on=LookupError)
async def raises(words: list[str]) -> list[str]:
    raise LookupError("all of them") if "final" in words else OSError("all of them")


@app.job(batch=Batch(2, wait_s=30))
async def too_few(words: list[str]) -> list[str]:
    return words[:1]


@app.job(batch=Batch(2, wait_s=30))
async def no_list(words: list[str]) -> list[str]:
    return "ab"  # type: ignore[return-value]


@app.job(batch=Batch(2, wait_s=30))
async def nothing(words: list[str]) -> None:
    pass


@app.job(batch=Batch(2, wait_s=30))
async def speaks(ctx: list[Context], words: list[str]) -> list[str]:
    print("for all")
    for one, word in zip(ctx, words, strict=True):
        one.log.info("about %s", word)
    return words


@app.job(batch=Batch(2, wait_s=30))
async def submits(ctx: list[Context], words: list[str]) -> list[str | Exception]:
    for one, word in zip(ctx, words, strict=True):
        one.submit(soon.call(len(word)))
    return [Fail("not this one") if word == "bad" else word for word in words]


@app.job(batch=Batch(2, wait_s=30))
async def submits_for_all(words: list[str]) -> list[str]:
    current().submit(soon.call(1))
    return words


@app.job(batch=Batch(2, wait_s=30))
async def holds(ctx: list[Context], words: list[str]) -> list[str]:
    for one in ctx:
        one.step("holding")
    while not os.path.exists(words[0]):  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.005)
    return [f"{one.cancelled}" for one in ctx]


@app.job(batch=Batch(2, wait_s=30))
async def slow(words: list[str]) -> list[str]:
    try:
        await asyncio.sleep(50)
    except asyncio.CancelledError:
        await asyncio.sleep(5)
        raise
    return words


@app.job
async def add_async(a: int) -> int:
    return a


@app.job(batch=Batch(2, wait_s=30))
async def never_ends(ctx: list[Context], words: list[str]) -> list[str]:
    for one in ctx:
        one.step("waiting")
    await asyncio.sleep(1000)
    return words


@app.job(batch=Batch(2, wait_s=0.3))
async def dies(words: list[str]) -> list[str]:
    os._exit(7)
