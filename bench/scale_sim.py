#!/usr/bin/env python3
"""scale_sim.py - how well keyhole's ranks would be used, up to 4,096 of them: a discrete-event simulation of src/plm/mpi.c.

Every rank has two pieces at a time; a piece is half of the rank's share of what is left; rank 0 sends one message after another
and computes itself only with up to 32 ranks. Times are assumptions that can be given:

    scale_sim.py --unit-seconds 1.9 --prompt-bytes 204800 --prompts 20 --rows 32

unit-seconds: one prompt with all rows on one rank, measured with "keyhole bench engine" or from a run's log.
"""
import argparse
import heapq
import random


def question(ranks, prompts, rows, a, rng):
    """Seconds for one question; as mpi.c does it, without taking over pieces."""
    blocks = min(max(1, -(-4 * ranks // prompts)), rows)
    units = blocks * prompts
    unit = a.unit_seconds / blocks
    # A block of few rows fills the engine less: what is shared between rows is paid once a block.
    unit *= 1 + a.block_cost * (blocks - 1) / rows
    if ranks == 1:
        return units * unit
    works = ranks <= 32
    sender = a.latency * (ranks - 1).bit_length()  # rows along the tree, mostly known already
    share = 1 / ranks if works else 1 / (ranks - 1)
    left, queue, end = units, [], sender
    free = [sender] * ranks  # when a rank has done what it was given
    for r in range(1, ranks):
        heapq.heappush(queue, (sender, r))
    if works:
        heapq.heappush(queue, (sender, 0))
    while left > 0:
        at, r = heapq.heappop(queue)
        n = max(1, int(left * share / 2))
        if r == 0:
            n = max(1, min(n, int(0.02 / unit)))
            n = min(n, left)
            free[0] = sender = max(at, sender) + n * unit  # messages wait while rank 0 computes
            heapq.heappush(queue, (free[0], 0))
        else:
            n = min(n, left)
            sender = max(sender, at) + a.overhead + n * a.prompt_bytes / a.bandwidth
            begin = max(free[r], sender + a.latency)
            noise = max(0.5, rng.gauss(1, a.noise))
            free[r] = begin + n * unit * noise
            heapq.heappush(queue, (begin + a.latency, r))  # asks for the next while it works on this one
        left -= n
        end = max(end, free[r])
    return end + a.latency


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--unit-seconds", type=float, required=True)
    p.add_argument("--prompt-bytes", type=float, required=True)
    p.add_argument("--prompts", type=int, nargs="+", default=[20])
    p.add_argument("--rows", type=int, default=32)
    p.add_argument("--latency", type=float, default=20e-6, help="seconds from send to arrival, polling included")
    p.add_argument("--overhead", type=float, default=5e-6, help="rank 0's own work for a message")
    p.add_argument("--bandwidth", type=float, default=5e9, help="bytes a second out of rank 0")
    p.add_argument("--between", type=float, default=5e-3, help="seconds between questions: the method and the journal's fsync")
    p.add_argument("--noise", type=float, default=0.03, help="standard deviation of a rank's speed")
    p.add_argument("--block-cost", type=float, default=0.25, help="what a block of one row costs more, as a share")
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 16, 64, 256, 1024, 4096])
    a = p.parse_args()
    print("ranks " + " ".join("pop=%-6d" % n for n in a.prompts) + " (efficiency, percent)")
    for ranks in a.ranks:
        cells = []
        for prompts in a.prompts:
            rng = random.Random(ranks * 1000 + prompts)
            alone = a.unit_seconds * prompts + a.between
            t = sum(question(ranks, prompts, a.rows, a, rng) for _ in range(3)) / 3 + a.between
            cells.append("%-10.1f" % (100 * alone / t / ranks))
        print("%-5d " % ranks + " ".join(cells))


if __name__ == "__main__":
    main()
