"""Plots of bench/report.py, as SVG."""

from __future__ import annotations

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f", "#bcbd22", "#e377c2", "#aec7e8",
           "#98df8a")


def page(path, width, height, parts):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n')
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + "\n".join(parts) + "\n</svg>\n")


def text(x, y, words, anchor="start", fill="black"):
    words = str(words).replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def curves(path, title, x_name, y_name, lines, top, ideal=None, ticks=5):
    """lines: (name, {x: y}). The values of x are evenly spaced; y is from 0 to `top`. ideal: {x: y}, dashed."""
    width, height, left, above, right, below = 760, 380, 60, 40, 250, 50
    xs = sorted({x for _, points in lines for x in points})

    def at(x, y):
        return (left + (width - left - right) * xs.index(x) / max(1, len(xs) - 1), height - below - (height - above - below) * y / top)

    def polyline(points, style):
        way = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in sorted(points.items()) if x in xs)
        return f'<polyline points="{way}" fill="none" {style}/>'

    out = [text(left, 20, title), text((width - right + left) / 2, height - 12, x_name, "middle"), text(8, above - 8, y_name),
           f'<polyline points="{left},{above} {left},{height - below} {width - right},{height - below}" fill="none" stroke="black"/>']
    for x in xs:
        out.append(text(at(x, 0)[0], height - below + 16, x, "middle"))
    for i in range(ticks + 1):
        out.append(text(left - 6, at(xs[0], top * i / ticks)[1] + 4, f"{top * i / ticks:g}", "end") if xs else "")
    if ideal:
        out.append(polyline(ideal, 'stroke="#bbb" stroke-dasharray="4"'))
    for i, (name, points) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        out.append(polyline(points, f'stroke="{colour}" stroke-width="2"'))
        out += ['<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>'.format(*at(x, y), colour) for x, y in points.items()]
        out.append(text(width - right + 12, above + 16 * i + 12, name, fill=colour))
    page(path, width, height, out)


def bars(path, title, names, rows):
    """Stacked bars: rows are (label, the length in ms of each of the names)."""
    width, left, right, above, each = 860, 240, 70, 60, 16
    most = max((sum(row[1]) for row in rows), default=1)
    out, x = [text(8, 20, title)], left
    for i, name in enumerate(names):
        out += [f'<rect x="{x}" y="32" width="10" height="10" fill="{COLOURS[i]}"/>', text(x + 14, 42, name)]
        x += 30 + 7 * len(name)
    for k, (label, lengths) in enumerate(rows):
        y, x = above + each * k, float(left)
        out.append(text(left - 6, y + 11, label, "end"))
        for i, length in enumerate(lengths):
            wide = (width - left - right) * length / most
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{each - 4}" fill="{COLOURS[i]}"/>')
            x += wide
        out.append(text(x + 4, y + 11, f"{sum(lengths):.1f}"))
    page(path, width, above + each * len(rows) + 12, out)
