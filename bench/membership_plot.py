"""Draws what bench/membership.py has measured: one small chart per row, ours beside serf, over the cluster's size.

    bench/membership_plot.py docs/benchmarks/membership.json > docs/membership.svg

A bar is the median of the repeats, the line on it reaches to the worst of them.
"""
import html
import json
import statistics
import sys

# (title, unit, beginning of the figure's name)
CHARTS = (
    ("kill -9: all others know", "s", "kill -9: all others know"),
    ("frozen: suspected by all (serf: by the first)", "s", "frozen: suspected by"),
    ("frozen: failed at all others", "s", "frozen: failed at all others"),
    ("join: all see all", "s", "join: all see all, from the last start"),
    ("restart: visible to all", "s", "restart: visible to all"),
    ("cut in halves: all see all again", "s", "cut in halves: all see all"),
    ("stalling quarter: false alarms", "", "stalls: false alarms"),
    ("sent by an agent", "B/s", "steady: sent"),
    ("CPU of an agent", "%", "steady: CPU"),
    ("memory of an agent", "MiB", "steady: memory"),
)
PROGRAMS = (("dtrain", "#1f6feb"), ("serf", "#8c959f"))
COLUMNS, WIDTH, HEIGHT, TOP, FOOT, LEFT = 2, 380, 210, 54, 34, 46
TICKS = 4


def text(x, y, words, size=12, anchor="start", colour="#24292f"):
    return '<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s" fill="%s">%s</text>' % (
        x, y, size, anchor, colour, html.escape(words))


def samples_of(figures, program, agents, prefix):
    """The most telling of the figures with that beginning: by all rather than by the first."""
    found = [figure for figure in figures if figure["program"] == program and figure["agents"] == agents
             and figure["what"].startswith(prefix) and figure["samples"]]
    return max(found, key=lambda figure: " all " in figure["what"])["samples"] if found else []


def nice(value):
    """The next of 1, 2, 5, 10, 20, ... above."""
    step = 0.001
    while True:
        for factor in (1, 2, 5):
            if value <= step * factor:
                return step * factor
        step *= 10


def chart(figures, sizes, title, unit, prefix, x, y):
    values = {(program, size): samples_of(figures, program, size, prefix) for program, _ in PROGRAMS for size in sizes}
    top = nice(max([max(samples) for samples in values.values() if samples] or [1]) or 1)
    inner, height = WIDTH - LEFT - 20, HEIGHT - TOP - FOOT
    base = y + TOP + height
    drawn = [text(x + LEFT, y + TOP - 14, title + (", " + unit if unit else ""), 13)]
    for tick in range(TICKS + 1):
        line = base - height * tick / TICKS
        drawn.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#d0d7de"/>' % (x + LEFT, line, x + LEFT + inner, line))
        drawn.append(text(x + LEFT - 6, line + 4, "%g" % (top * tick / TICKS), 10, "end", "#57606a"))
    for place, size in enumerate(sizes):
        middle = x + LEFT + inner * (place + 0.5) / len(sizes)
        drawn.append(text(middle, base + 16, "%d" % size, 11, "middle", "#57606a"))
        for side, (program, colour) in enumerate(PROGRAMS):
            samples = values[program, size]
            if not samples:
                continue
            left, median = middle + (side - 1) * 26, statistics.median(samples)
            bar, worst = height * median / top, height * max(samples) / top
            drawn.append('<rect x="%.1f" y="%.1f" width="22" height="%.1f" fill="%s"/>' % (left + 2, base - bar, max(bar, 0.5), colour))
            drawn.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#24292f"/>' % (
                left + 13, base - bar, left + 13, base - worst))
            drawn.append(text(left + 13, base - worst - 3, "%.3g" % median, 9, "middle"))
    return drawn


def plot(raw):
    sizes = sorted({figure["agents"] for figure in raw["figures"]})
    rows = (len(CHARTS) + COLUMNS - 1) // COLUMNS
    width, height = COLUMNS * WIDTH, rows * HEIGHT + 60
    drawn = ['<rect width="%d" height="%d" fill="white"/>' % (width, height),
             text(LEFT, 26, "Membership on one machine of %d processors, by agents in the cluster; bar: median, line: worst"
                  % raw["processors"], 14)]
    for place, (program, colour) in enumerate(PROGRAMS):
        drawn.append('<rect x="%d" y="36" width="12" height="12" fill="%s"/>' % (LEFT + place * 90, colour))
        drawn.append(text(LEFT + 18 + place * 90, 46, program))
    for place, (title, unit, prefix) in enumerate(CHARTS):
        drawn += chart(raw["figures"], sizes, title, unit, prefix, place % COLUMNS * WIDTH, 40 + place // COLUMNS * HEIGHT)
    return '<svg xmlns="%s" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif">\n%s\n</svg>\n' % (
        "http:" + "//www.w3.org/2000/svg", width, height, width, height, "\n".join(drawn))


if __name__ == "__main__":
    with open(sys.argv[1]) as raw_file:
        sys.stdout.write(plot(json.load(raw_file)))
