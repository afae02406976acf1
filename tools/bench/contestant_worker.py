"""`python -m tools.bench.contestant_worker TASK`: one contestant in this process, and nobody else.

Where memory lies decides how fast a session is, and what one contestant asks of the system (huge pages, threads,
allocator) would change the others' figures if they shared a process. TASK: a contestant and `threads`, as JSON. Speaks
as peer_worker.py does; an answer says each step's host time and session runs too.
"""

import gc
import json
import os
import sys
from typing import Any

from tools.bench.contestants import Contestant, Generate, open_contestant
from tools.bench.run_clock import RunClock, step_times


def answer_of(generate: Generate, request: dict[str, Any]) -> dict[str, Any]:
    """One generation, as data."""
    gc.collect()
    trace = generate(request["rows"], request["new"])
    own = step_times(trace.calls)
    times = {"steps": own.seconds, "hosts": own.hosts, "runs": own.runs}
    return {"tokens": trace.tokens, "ttft": trace.ttft, "seconds": trace.seconds, **times}


def main() -> None:
    """Open, say so, then answer until the requests end. Only answers go to standard output."""
    task = json.loads(sys.argv[1])
    threads = task.pop("threads")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    generate = open_contestant(Contestant(**task), threads, RunClock())
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer_of(generate, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
