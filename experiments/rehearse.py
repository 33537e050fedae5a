"""Name the command that this script has become."""

import sys

if __name__ == "__main__":
    print(
        "a rehearsal is a benchmark now: python -m tests.benchmarks.bench_published_scale --encoders ...",
        file=sys.stderr,
    )
    sys.exit(2)
