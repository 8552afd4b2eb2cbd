"use strict";
/* Everything that is drawn on a canvas; nothing here computes what it draws. */
const Drawing = (() => {
  let colours = {};

  /* The page's colours, read from its style; ask again when the theme changes. */
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["paper", "card", "ink", "soft", "line", "accent", "up", "down", "neg", "pos", "zero", "ring"];
    colours = Object.fromEntries(names.map((n) => [n, style.getPropertyValue(`--${n}`).trim()]));
    colours.dark = document.documentElement.dataset.theme === "dark";
    for (const name of ["neg", "pos", "zero", "card", "ink"]) colours[`${name}Rgb`] = channels(colours[name]);
    return colours;
  }

  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const mix = (a, b, share) => a.map((v, k) => Math.round(v + (b[k] - v) * share));
  const css = (rgb, alpha = 1) => `rgb(${rgb[0]} ${rgb[1]} ${rgb[2]} / ${alpha})`;

  /* From one colour over a neutral one to another, for values from -1 to 1. */
  function shade(value) {
    const size = Math.min(1, Math.abs(value)) ** 0.85;
    return mix(colours.zeroRgb, value < 0 ? colours.negRgb : colours.posRgb, size);
  }

  /* A canvas at the resolution of the screen; null while it is not shown. */
  function context(canvas) {
    const box = canvas.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) return null;
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, box.width, box.height);
    pen.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
    return { pen, width: box.width, height: box.height };
  }

  /* Where each neuron is: layers are blocks, the first at the bottom. */
  function places(layers, width, height) {
    const rows = layers.map((l) => Math.ceil(l.count / l.columns));
    const gap = 0.9;
    const widest = Math.max(...layers.map((l) => l.columns));
    const tall = rows.reduce((a, b) => a + b, 0) + gap * (layers.length - 1);
    const cell = Math.min(width / widest, height / tall);
    let bottom = (height + tall * cell) / 2;
    const found = [];
    layers.forEach((layer, k) => {
      const top = bottom - rows[k] * cell;
      const left = (width - layer.columns * cell) / 2;
      const start = found.length;
      for (let p = 0; p < layer.count; p++) {
        const [row, column] = [Math.floor(p / layer.columns), p % layer.columns];
        found[start + layer.order[p]] = [left + (column + 0.5) * cell, top + (row + 0.5) * cell];
      }
      bottom = top - gap * cell;
    });
    return { cell, found };
  }

  /* Neurons as discs: colour and size are activity, a ring is change. */
  function field(canvas, layers, values, { change = null, dead = null, cursor = -1, scale = 1 } = {}) {
    const at = context(canvas);
    if (!at) return;
    const { pen, width, height } = at;
    const { cell, found } = places(layers, width, height);
    for (let i = 0; i < values.length; i++) {
      const [x, y] = found[i];
      const value = values[i] / scale;
      const size = Math.min(1, Math.abs(value));
      const radius = cell * (0.2 + 0.2 * size);
      if (dead && dead[i]) {
        cross(pen, x, y, cell * 0.16);
      } else {
        if (colours.dark && size > 0.35) {
          pen.fillStyle = css(shade(value), 0.16 * size);
          disc(pen, x, y, cell * (0.3 + 0.22 * size));
        }
        pen.fillStyle = css(shade(value));
        disc(pen, x, y, radius);
        const moving = change ? Math.min(1, Math.abs(change[i]) * 12) : 0;
        if (moving > 0.02) {
          pen.strokeStyle = colours.ring;
          pen.globalAlpha = moving;
          pen.lineWidth = Math.max(1, cell * 0.045);
          pen.beginPath();
          pen.arc(x, y, Math.min(cell * 0.47, radius + cell * 0.07), 0, 2 * Math.PI);
          pen.stroke();
          pen.globalAlpha = 1;
        }
      }
      if (i === cursor) {
        pen.strokeStyle = colours.accent;
        pen.lineWidth = 2;
        pen.strokeRect(x - cell / 2 + 1, y - cell / 2 + 1, cell - 2, cell - 2);
      }
    }
  }

  /* The largest entries of a symmetric matrix as lines between the neurons they join. */
  function web(canvas, layers, weights, chosen, peak) {
    const at = context(canvas);
    if (!at) return;
    const { pen, width, height } = at;
    const { cell, found } = places(layers, width, height);
    const n = found.length;
    pen.lineCap = "round";
    for (const at of chosen) {
      const [i, j] = [Math.floor(at / n), at % n];
      const value = weights[at] / peak;
      pen.strokeStyle = value < 0 ? colours.neg : colours.pos;
      pen.globalAlpha = Math.min(1, 0.12 + 0.8 * Math.abs(value));
      pen.lineWidth = 0.6 + 1.6 * Math.min(1, Math.abs(value));
      line(pen, ...found[i], ...found[j]);
    }
    pen.globalAlpha = 1;
    pen.fillStyle = colours.soft;
    for (const [x, y] of found) disc(pen, x, y, Math.max(1, cell * 0.09));
  }

  function disc(pen, x, y, radius) {
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
  }

  function cross(pen, x, y, arm) {
    pen.strokeStyle = colours.soft;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x - arm, y - arm);
    pen.lineTo(x + arm, y + arm);
    pen.moveTo(x + arm, y - arm);
    pen.lineTo(x - arm, y + arm);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  /* Which neuron is at a place of the canvas. */
  function neuronAt(canvas, layers, x, y) {
    const box = canvas.getBoundingClientRect();
    const { cell, found } = places(layers, box.width, box.height);
    return found.findIndex(([a, b]) => Math.abs(a - x) < cell / 2 && Math.abs(b - y) < cell / 2);
  }

  /* A picture of pixels from 0 (paper) to 1 (ink); `cover` says which are hidden. */
  function picture(canvas, pixels, side, { cover = null, cursor = -1, reveal = false, outline = null } = {}) {
    const at = context(canvas);
    if (!at) return;
    const { pen, width } = at;
    const cell = width / side;
    for (let i = 0; i < pixels.length; i++) {
      const x = (i % side) * cell;
      const y = Math.floor(i / side) * cell;
      const hidden = cover && cover[i];
      const value = hidden && !reveal ? 0 : Math.min(1, Math.max(0, pixels[i]));
      pen.fillStyle = css(mix(colours.zeroRgb, colours.inkRgb, value), hidden && reveal ? 0.45 : 1);
      tile(pen, x, y, cell);
      if (hidden && !reveal) hatch(pen, x, y, cell);
      if (outline && outline[i]) {
        pen.fillStyle = colours.accent;
        disc(pen, x + cell * 0.84, y + cell * 0.16, Math.max(1, cell * 0.05));
      }
    }
    if (cursor >= 0) {
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 2;
      pen.strokeRect((cursor % side) * cell + 1, Math.floor(cursor / side) * cell + 1, cell - 2, cell - 2);
    }
  }

  function tile(pen, x, y, cell) {
    const gap = cell > 12 ? 1 : 0;
    pen.beginPath();
    if (cell > 12) pen.roundRect(x + gap / 2, y + gap / 2, cell - gap, cell - gap, cell * 0.12);
    else pen.rect(x, y, cell + 0.5, cell + 0.5);
    pen.fill();
  }

  function hatch(pen, x, y, cell) {
    pen.save();
    pen.beginPath();
    pen.rect(x + 0.5, y + 0.5, cell - 1, cell - 1);
    pen.clip();
    pen.strokeStyle = colours.soft;
    pen.globalAlpha = 0.35;
    pen.lineWidth = 1;
    pen.beginPath();
    for (let k = -1; k < 2; k += 0.5) {
      pen.moveTo(x + k * cell, y + cell);
      pen.lineTo(x + (k + 1) * cell, y);
    }
    pen.stroke();
    pen.restore();
  }

  /* A maze: walls, open cells lit by the probability that they are on the way, two marks. */
  function maze(canvas, { side, walls, marks }, lit, cursor) {
    const at = context(canvas);
    if (!at) return;
    const { pen, width } = at;
    const [cell, sharp] = [width / side, canvas.width / width];
    const edge = (k) => Math.round(k * cell * sharp) / sharp;
    const wall = css(mix(colours.cardRgb, colours.inkRgb, colours.dark ? 0.3 : 0.82));
    for (let p = 0; p < walls.length; p++) {
      // Whole pixels, so that no seam shows between two cells.
      const [x, y] = [edge(p % side), edge(Math.floor(p / side))];
      pen.fillStyle = walls[p] ? wall : css(mix(colours.zeroRgb, colours.posRgb, lit[p]));
      pen.fillRect(x, y, edge((p % side) + 1) - x, edge(Math.floor(p / side) + 1) - y);
    }
    for (const mark of marks) {
      const [x, y] = [((mark % side) + 0.5) * cell, (Math.floor(mark / side) + 0.5) * cell];
      pen.fillStyle = colours.card;
      disc(pen, x, y, cell * 0.4);
      pen.fillStyle = colours.accent;
      disc(pen, x, y, cell * 0.3);
    }
    if (cursor >= 0) {
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 2.5;
      pen.strokeRect((cursor % side) * cell + 1, Math.floor(cursor / side) * cell + 1, cell - 2, cell - 2);
    }
  }

  const short = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e4 || size < 1e-2) return value.toExponential(0).replace("e-", "e−").replace("e+", "e");
    return String(Number(value.toPrecision(3))).replace("-", "−");
  };

  /* Values against steps. `log`: decades on the axis; `level`: a line to fall below. */
  function curve(canvas, values, { log = false, level = null, first = 0, colour = "accent", marks = [] } = {}) {
    const at = context(canvas);
    if (!at) return;
    const { pen, width, height } = at;
    const box = { left: 44, right: width - 6, top: 6, bottom: height - 16 };
    const scale = (v) => (log ? Math.log10(Math.max(v, 1e-9)) : v);
    const shown = values.filter(Number.isFinite).map(scale);
    let [low, high] = shown.length ? [Math.min(...shown), Math.max(...shown)] : [log ? -6 : -1, 0];
    if (log) [low, high] = [Math.floor(Math.min(low, scale(level ?? 1e-7))), Math.max(0, Math.ceil(high))];
    else if (high - low < 1e-6) [low, high] = [low - 0.5, high + 0.5];
    else [low, high] = [low - 0.06 * (high - low), high + 0.06 * (high - low)];
    const y = (v) => box.bottom - ((scale(v) - low) / (high - low)) * (box.bottom - box.top);
    const span = Math.max(30, values.length - 1);
    const x = (k) => box.left + (k / span) * (box.right - box.left);
    const ticks = log ? decades(low, high) : [low + 0.06 * (high - low), high - 0.06 * (high - low)].map(Number);
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const write = log || high - low > 0.01 * Math.abs(high) ? short : (v) => v.toFixed(2).replace("-", "−");
    for (const tick of ticks) {
      const value = log ? 10 ** tick : tick;
      pen.strokeStyle = colours.line;
      line(pen, box.left, y(value), box.right, y(value));
      pen.fillStyle = colours.soft;
      pen.fillText(write(value), box.left - 6, y(value));
    }
    if (level !== null) {
      pen.strokeStyle = colours.down;
      pen.setLineDash([3, 3]);
      line(pen, box.left, y(level), box.right, y(level));
      pen.setLineDash([]);
    }
    for (const mark of marks) {
      if (mark < first) continue;
      pen.strokeStyle = colours.up;
      pen.setLineDash([2, 3]);
      line(pen, x(mark - first), box.top, x(mark - first), box.bottom);
      pen.setLineDash([]);
    }
    pen.fillStyle = colours.soft;
    pen.textBaseline = "alphabetic";
    pen.textAlign = "left";
    pen.fillText(String(first), box.left, height - 3);
    pen.textAlign = "right";
    pen.fillText(`step ${first + span}`, box.right, height - 3);
    trace(pen, values.map((v, k) => [x(k), y(v)]).filter(([, b]) => Number.isFinite(b)), colours[colour]);
  }

  const decades = (low, high) => {
    const every = Math.max(1, Math.ceil((high - low) / 4));
    const found = [];
    for (let k = high; k >= low; k -= every) found.push(k);
    return found;
  };

  function line(pen, x0, y0, x1, y1) {
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
  }

  function trace(pen, points, colour, { dot = true, width = 1.8 } = {}) {
    if (!points.length) return;
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.beginPath();
    points.forEach(([a, b], k) => (k ? pen.lineTo(a, b) : pen.moveTo(a, b)));
    pen.stroke();
    if (dot) disc(pen, ...points[points.length - 1], 3);
  }

  return { readColours, context, field, neuronAt, picture, maze, curve, web, line, trace, disc, short, colours: () => colours };
})();
