"""Line plots as SVG text: just what the performance page needs, without a plotting library.

A plot has one horizontal and one vertical axis, linear or logarithmic, and a line with dots for each series. Text is
text, so that it scales and can be searched; colours are those of Okabe and Ito, which also colour-blind readers tell
apart, and every series has a dash pattern of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 800, 340
LEFT, RIGHT, TOP, BOTTOM = 70, 270, 36, 50
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 2", "")
FONT = "font-family='sans-serif' font-size='12'"


@dataclass(frozen=True)
class Series:
    """A line: its name and its points (x, y), in order of x."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Axis:
    """across, up: titles. log_across, log_up: whether that axis is logarithmic; a linear one begins at 0."""

    across: str
    up: str
    log_across: bool = False
    log_up: bool = False


def line_plot(title: str, axis: Axis, lines: Sequence[Series]) -> str:
    """The whole SVG document. Raises ValueError without points, or with one below 0 (or at 0 on a logarithmic axis)."""
    points = [point for each in lines for point in each.points]
    if not points:
        raise ValueError(f"{title}: nothing to draw")
    across = scale([x for x, _ in points], LEFT, WIDTH - RIGHT, axis.log_across)
    up = scale([y for _, y in points], HEIGHT - BOTTOM, TOP, axis.log_up)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' "
        f"role='img' aria-label='{escape(title, quote=True)}'>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
        f"<text x='{LEFT}' y='18' {FONT} font-weight='bold'>{escape(title)}</text>",
        *grid(across, up, axis),
    ]
    for number, each in enumerate(lines):
        parts += drawn(each, number, across, up)
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True)
class Scale:
    """From values between low and high to places between start and end, with the values that get a mark."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    marks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Where a value stands."""
        low, high, at = (math.log10(each) for each in (self.low, self.high, value)) if self.log else (
            self.low, self.high, value
        )  # fmt: skip
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def scale(values: Sequence[float], start: float, end: float, log: bool) -> Scale:
    """A scale that holds these values: from 0, or, logarithmic, from the power of two or ten below them."""
    low, high = min(values), max(values)
    if low < 0 or (log and low == 0):
        raise ValueError(f"{low} can't be drawn here")
    if not log:
        step = mark_step(high or 1.0)
        count = math.ceil((high or 1.0) / step - 1e-9)
        return Scale(0.0, count * step, start, end, log, tuple(step * number for number in range(count + 1)))
    base = 2 if high / low <= 2**8 else 10
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    marks = tuple(float(base) ** power for power in range(first, max(last, first + 1) + 1))
    return Scale(marks[0], marks[-1], start, end, log, marks)


def mark_step(high: float) -> float:
    """1, 2 or 5 times a power of ten, so that there are five to ten marks up to `high`."""
    power = 10.0 ** math.floor(math.log10(high))
    return next(power * part for part in (0.1, 0.2, 0.5, 1.0) if high / (power * part) <= 10)


def number(value: float) -> str:
    """A mark's text."""
    if value >= 1 or value == 0:
        return f"{value:,.0f}" if value == round(value) else f"{value:g}"
    return f"{value:.3g}"


def grid(across: Scale, up: Scale, axis: Axis) -> list[str]:
    """Lines and texts of both axes."""
    parts = []
    for mark in across.marks:
        x = across.place(mark)
        parts.append(f"<line x1='{x:.1f}' y1='{TOP}' x2='{x:.1f}' y2='{HEIGHT - BOTTOM}' stroke='#ddd'/>")
        parts.append(f"<text x='{x:.1f}' y='{HEIGHT - BOTTOM + 16}' {FONT} text-anchor='middle'>{number(mark)}</text>")
    for mark in up.marks:
        y = up.place(mark)
        parts.append(f"<line x1='{LEFT}' y1='{y:.1f}' x2='{WIDTH - RIGHT}' y2='{y:.1f}' stroke='#ddd'/>")
        parts.append(f"<text x='{LEFT - 6}' y='{y + 4:.1f}' {FONT} text-anchor='end'>{number(mark)}</text>")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    centre = f"x='{(LEFT + WIDTH - RIGHT) / 2}' y='{HEIGHT - 12}'"
    parts.append(f"<text {centre} {FONT} text-anchor='middle'>{escape(axis.across)}</text>")
    turned = f"transform='rotate(-90 16 {middle})'"
    parts.append(f"<text x='16' y='{middle}' {FONT} text-anchor='middle' {turned}>{escape(axis.up)}</text>")
    return parts


def drawn(line: Series, at: int, across: Scale, up: Scale) -> list[str]:
    """A series: its line, its dots, and its name on the right."""
    colour, dash = COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]
    places = [(across.place(x), up.place(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    stroke = f"fill='none' stroke='{colour}' stroke-width='2'" + (f" stroke-dasharray='{dash}'" if dash else "")
    y = TOP + 14 + 16 * at
    return [
        f"<polyline points='{path}' {stroke}/>",
        *(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>" for x, y in places),
        f"<line x1='{WIDTH - RIGHT + 12}' y1='{y - 4}' x2='{WIDTH - RIGHT + 40}' y2='{y - 4}' {stroke}/>",
        f"<text x='{WIDTH - RIGHT + 46}' y='{y}' {FONT}>{escape(line.name)}</text>",
    ]
