"""What tenscope is for: find everything that a killed training recorded, and where two trainings first part.

    python examples/demo.py [folder]

1. trains a small GPT twice on the same text, the second time recording: the parameters are bitwise equal
2. trains it in a process of its own that acknowledges every record over a pipe, and kills that process with SIGKILL
3. reads the recording of the dead process back and compares each acknowledged tensor by SHA-256
4. records two versions of the training with `tenscope run`, one of them with a mistake in its attention: the diff names
   the module, and the graph shows it
5. runs both versions again with every operation of that module recorded: zoom names the line
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import demo_gpt
import tenscope
import torch

GPT = Path(__file__).with_name("demo_gpt.py")
TWO_VERSIONS = Path(__file__).with_name("demo_bug.py")
TENSCOPE = Path(sys.executable).with_name("tenscope")


def say(text=""):
    print(text, flush=True)


def train_with_and_without(runs):
    say("1. A GPT of three layers, trained 20 steps without the recorder and 20 steps with it.")
    began = time.perf_counter()
    plain = demo_gpt.train(20, lambda name, tensor: None)
    middle = time.perf_counter()
    run = tenscope.init(runs / "train")
    recorded = demo_gpt.train(
        20, tenscope.record, lambda step, loss: step % 5 or say(f"   step {step:2}  loss {loss:.4f}")
    )
    tenscope.close()
    end = time.perf_counter()
    pairs = zip(plain.parameters(), recorded.parameters(), strict=True)
    equal = all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in pairs)
    say(f"   Parameters after training are bitwise equal: {equal}")
    say(
        f"   {middle - began:.1f} s without, {end - middle:.1f} s with, "
        f"{len(tenscope.open(run.path))} events in {run.path}"
    )
    return run.path if equal else None


def record_until_killed(runs, records):
    """Kills the training after that many acknowledged records; returns the acknowledgements."""
    command = [sys.executable, str(GPT), str(runs / "crash"), "--steps", "1000", "--acknowledge"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    acknowledged = [child.stdout.readline().split() for _ in range(records)]
    os.kill(child.pid, signal.SIGKILL)
    acknowledged += [line.split() for line in child.stdout if line.endswith("\n")]
    child.wait()
    return acknowledged, child.returncode


def find_lost(run, acknowledged):
    lost = []
    for name, step, digest in acknowledged:
        try:
            tensor = run[name, int(step)]
        except tenscope.Error as error:
            lost.append(f"{name} step {step}: {error}")
            continue
        if hashlib.sha256(tensor.tobytes()).hexdigest() != digest:
            lost.append(f"{name} step {step}: other bytes")
    return lost


def call(*words):
    """A command as a user would type it, and what it says."""
    say("   $ " + " ".join(["tenscope", *map(str, words)]))
    done = subprocess.run([TENSCOPE, *words], capture_output=True, text=True)
    for line in (done.stdout + (done.stderr if done.returncode == 2 else "")).splitlines():
        say(f"     {line}")
    return done


def find_the_mistake(runs):
    """Records both versions, and returns whether the diff blames the attention, and the page to look at."""
    folder = runs / "two-versions"
    shutil.rmtree(folder, ignore_errors=True)
    good, bad, picture, page = folder / "good", folder / "bad", folder / "difference.svg", folder / "page.html"
    call("run", "--out", folder, "--name", "good", TWO_VERSIONS)
    call("run", "--out", folder, "--name", "bad", TWO_VERSIONS, "--rewritten")
    found = call("diff", good, bad, "--top", "3")
    if shutil.which("dot") is None:
        picture = picture.with_suffix(".dot")
    drawn = call("graph", good, "--against", bad, "-o", picture)
    shown = call("view", good, bad, "--export", page)
    is_named = found.returncode == 1 and "blocks.0.attn" in found.stdout.partition("\n")[0]
    return is_named and drawn.returncode == 0 and shown.returncode == 0, page


def find_the_line(runs):
    """Whether zoom names the line that demo_bug.py marks."""
    folder = runs / "two-versions"
    say(f"   $ tenscope zoom {folder / 'good'} {folder / 'bad'}")
    command = [TENSCOPE, "zoom", folder / "good", folder / "bad"]
    done = subprocess.run(command, capture_output=True, text=True)
    report = done.stdout.partition("\n\n")[2]  # behind that of diff
    for line in (report or done.stderr).splitlines():
        say(f"     {line}")
    lines = TWO_VERSIONS.read_text().splitlines()
    wrong = next(number for number, text in enumerate(lines, 1) if "# the mistake" in text)
    return done.returncode == 1 and f"B  demo_bug.py:{wrong} " in report.replace("examples/", "")


def main():
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    path = train_with_and_without(runs)

    say("\n2. The same training in a process of its own, killed with SIGKILL in the middle of a step.")
    acknowledged, status = record_until_killed(runs, records=777)
    say(f"   It ended with status {status}, after it had acknowledged {len(acknowledged)} records.")

    say("\n3. What the dead process left:")
    crashed = tenscope.open(runs / "crash")
    lost = find_lost(crashed, acknowledged)
    table = repr(crashed).splitlines()
    say("\n".join("   " + line for line in [*table[:14], f"  … and {len(crashed.names()) - 12} more names"]))
    say(
        f"\n   {len(acknowledged)} acknowledged, {len(acknowledged) - len(lost)} read back bit for bit, "
        f"{len(lost)} lost."
    )
    for line in lost[:10]:
        say(f"   LOST {line}")

    say("\n4. Two versions of the training. In the second one somebody wrote the attention anew: the loss looks fine.")
    is_found, page = find_the_mistake(runs)
    say(f"   The module with the mistake is {'named' if is_found else 'NOT named'}. Open {page} in a browser.")

    say("\n5. Which line? Both versions are run again up to that step, with every operation of that module recorded.")
    is_line_found = find_the_line(runs)
    say(f"   The line with the mistake is {'named' if is_line_found else 'NOT named'}.")

    say(f"""
Try next:
  tenscope view {runs}/two-versions/good {runs}/two-versions/bad
  tenscope ls {runs}/train
  tenscope show {path} logits --step 3
  tenscope verify {crashed.path}
  tenscope repair {crashed.path}
  tenscope diff {path} {crashed.path}
  python -c "import tenscope; print(tenscope.open('{runs}/train').stack('loss'))\"""")
    sys.exit(0 if path and not lost and is_found and is_line_found else 1)


if __name__ == "__main__":
    main()
