"""Runs of 32 ranks (those of bench_ranks.py) on an S3 server on loopback, moto's: what pushing, listing and comparing
them asks of it, with an empty cache and once more. Seconds count the server's work too, which is slower than any store.

python bench/bench_object_store.py [--ranks 32]
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_ranks import make_runs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from s3_server import SECRET, TENSCOPE, S3Server


def tell(server, what, *words):
    server.clear()
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([TENSCOPE, *map(str, words)], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    fetched = sum(request.size for request in server.reads()) / 1e6
    print(
        f"{what:44} {time.perf_counter() - began:6.1f} s {cpu:6.1f} s CPU {len(server.requests):5} requests"
        f" {len(server.reads()):5} reads {fetched:7.1f} MB"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=32)
    ranks = parser.parse_args().ranks
    server = S3Server()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder, cache = Path(name), Path(name) / "cache"
            os.environ |= {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "bench", "TENSCOPE_CACHE": str(cache)}
            os.environ |= {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1", "TENSCOPE_QUIET": "1"}
            server.empty_bucket()
            make_runs(folder, ranks)
            sizes = [path.stat().st_size for path in (folder / f"a-{ranks}").rglob("*") if path.is_file()]
            print(f"{ranks} ranks, {len(sizes)} files, {sum(sizes) / 1e6:.0f} MB a run")
            a, same, other = (f"s3://bucket/{name}-{ranks}" for name in ("a", "same", "other"))
            for url in (a, same, other):
                tell(server, f"push {Path(url).name}", "push", folder / Path(url).name, url)
            for what, words in [
                ("ls", ("ls", a)),
                ("diff, equal", ("diff", a, same)),
                ("diff, every rank differs", ("diff", a, other)),
                ("diff with a run on the disk, equal", ("diff", a, folder / f"same-{ranks}")),
            ]:
                shutil.rmtree(cache, ignore_errors=True)
                tell(server, f"{what}, empty cache", *words)
                tell(server, f"{what}, again", *words)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
