"""How the scripts of this folder are asked: a job and its answer are a line of JSON each."""

import json
import os
import sys


def answer(*functions):
    """Does each job of stdin by the function that it names; what one raises is an answer, too."""
    jobs = {job.__name__: job for job in functions}
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        job = json.loads(line)
        try:
            done = jobs[job.pop("do")](**job)
        except Exception as error:
            done = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(done), file=answers, flush=True)
