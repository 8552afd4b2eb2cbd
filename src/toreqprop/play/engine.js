"use strict";
/* The network itself: relaxation, energy, nudging, gradients. No drawing, no document.
   All arithmetic is in double precision, from the float32 weights the library exported.

   A network of n tanh neurons with a symmetric matrix W settles where s = tanh(drive + W s);
   its energy is E = sum(s atanh(s) + log(1 - s^2)/2) - drive.s - s.Ws/2. */
const Engine = (() => {
  const LARGEST_PUSH = 4; // as in the library: no neuron is pushed by more than this many beta
  const ACTIVITY_FLOOR = 1e-3; // residuals are relative to the activity, but not to less than this

  function bytes(base64) {
    const text = atob(base64);
    const found = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
    return found;
  }

  const doubles = (base64) => Float64Array.from(new Float32Array(bytes(base64).buffer));

  /* The exported data as arrays of numbers, row by row. */
  function network(data) {
    const arrays = {};
    for (const [name, text] of Object.entries(data.weights)) arrays[name] = doubles(text);
    const { neurons: n, inputs, outputs } = data;
    return { n, inputs, outputs, radius: data.radius, ...arrays, data };
  }

  const copy = (net) => ({
    ...net,
    input: net.input.slice(),
    bias: net.bias.slice(),
    recurrent: net.recurrent.slice(),
    readout: net.readout.slice(),
    offset: net.offset.slice(),
  });

  const dot = (a, b) => {
    let sum = 0;
    for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
    return sum;
  };
  const norm = (a) => Math.sqrt(dot(a, a));

  function times(matrix, vector, rows) {
    const columns = vector.length;
    const found = new Float64Array(rows);
    for (let i = 0, at = 0; i < rows; i++) {
      let sum = 0;
      for (let j = 0; j < columns; j++) sum += matrix[at++] * vector[j];
      found[i] = sum;
    }
    return found;
  }

  /* W_in x + b: what the picture does to every neuron. */
  function drive(net, x) {
    const found = times(net.input, x, net.n);
    for (let i = 0; i < net.n; i++) found[i] += net.bias[i];
    return found;
  }

  /* One evaluation of the map, and how far it is from the state. `options`: push (a force to
     subtract), strength (a factor of W), dead (neurons that stay at zero). */
  function image(net, drives, state, { push = null, strength = 1, dead = null } = {}) {
    const found = times(net.recurrent, state, net.n);
    let gap = 0;
    let size = 0;
    for (let i = 0; i < net.n; i++) {
      const force = push ? push[i] : 0;
      found[i] = dead && dead[i] ? 0 : Math.tanh(drives[i] + strength * found[i] - force);
      gap += (found[i] - state[i]) ** 2;
      size += found[i] ** 2;
    }
    const scale = Math.max(Math.sqrt(size), ACTIVITY_FLOOR * Math.sqrt(net.n));
    return { state: found, residual: Math.sqrt(gap) / scale };
  }

  /* s + damping (f(s) - s). */
  function step(net, drives, state, options = {}) {
    const found = image(net, drives, state, options);
    const damping = options.damping ?? 1;
    if (damping !== 1) {
      for (let i = 0; i < net.n; i++) {
        found.state[i] = state[i] + damping * (found.state[i] - state[i]);
      }
    }
    return found;
  }

  /* Steps until the residual is below tol; says whether it got there. */
  function settle(net, drives, options = {}) {
    const { tol = 1e-10, maxSteps = 2000, start = null } = options;
    let state = start ? Float64Array.from(start) : new Float64Array(net.n);
    let residual = Infinity;
    let steps = 0;
    while (steps < maxSteps && residual > tol) {
      const next = step(net, drives, state, options);
      state = next.state;
      residual = next.residual;
      steps++;
    }
    return { state, residual, steps, settled: residual <= tol };
  }

  function energy(net, drives, state, { push = null, strength = 1 } = {}) {
    const field = times(net.recurrent, state, net.n);
    let sum = 0;
    for (let i = 0; i < net.n; i++) {
      const s = Math.min(Math.max(state[i], -1 + 1e-15), 1 - 1e-15);
      sum += s * Math.atanh(s) + 0.5 * Math.log1p(-s * s);
      sum -= s * (drives[i] + 0.5 * strength * field[i] - (push ? push[i] : 0));
    }
    return sum;
  }

  function readout(net, state) {
    const found = times(net.readout, state, net.outputs);
    for (let k = 0; k < net.outputs; k++) found[k] += net.offset[k];
    return found;
  }

  function softmax(logits) {
    const peak = Math.max(...logits);
    const found = Float64Array.from(logits, (v) => Math.exp(v - peak));
    const total = found.reduce((a, b) => a + b, 0);
    return found.map((v) => v / total);
  }

  /* Cross-entropy of one target, and its derivative by the state. */
  function loss(net, state, target) {
    const chances = softmax(readout(net, state));
    const value = -Math.log(Math.max(chances[target], 1e-300));
    const error = Float64Array.from(chances, (p, k) => p - (k === target ? 1 : 0));
    const cotangent = new Float64Array(net.n);
    for (let k = 0, at = 0; k < net.outputs; k++) {
      for (let i = 0; i < net.n; i++) cotangent[i] += error[k] * net.readout[at++];
    }
    return { value, error, cotangent };
  }

  /* A direction of root mean square one, and its size: beta then means the same for every loss. */
  function normalise(net, cotangent) {
    const read = net.data.layers[net.data.layers.length - 1].count; // the loss looks at these
    const peak = cotangent.reduce((a, g) => Math.max(a, Math.abs(g)), 1e-300);
    const unit = cotangent.map((g) => g / peak);
    const size = Math.max(norm(unit) / Math.sqrt(read), 1 / LARGEST_PUSH);
    return { direction: unit.map((u) => u / size), scale: peak * size };
  }

  /* The equilibrium of E + beta C, with C linear along `direction`. */
  function nudged(net, drives, direction, beta, options = {}) {
    return settle(net, drives, { ...options, push: direction.map((g) => beta * g) });
  }

  /* Gradients from two equilibria: each weight sees the activity at its two ends, twice. */
  function contrast(net, x, up, down, beta, scale) {
    const { n } = net;
    const unit = scale / (2 * beta);
    const bias = new Float64Array(n);
    for (let i = 0; i < n; i++) bias[i] = -unit * (up[i] - down[i]);
    const recurrent = new Float64Array(n * n);
    for (let i = 0, at = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        recurrent[at++] = -0.5 * unit * (up[i] * up[j] - down[i] * down[j]);
      }
    }
    return masked(net, { input: outer(bias, x), bias, recurrent });
  }

  /* The exact gradient, by the implicit function theorem: (1/(1 - s^2) - W) a = dC/ds is solved by
     elimination. It is the yardstick; nothing learns from it. */
  function exact(net, x, state, cotangent, { strength = 1 } = {}) {
    const { n } = net;
    const slopes = state.map((s) => 1 - s * s);
    const matrix = new Float64Array(n * n);
    for (let i = 0, at = 0; i < n; i++) {
      for (let j = 0; j < n; j++, at++) {
        matrix[at] = (i === j ? 1 : 0) - slopes[i] * strength * net.recurrent[at];
      }
    }
    const bias = solve(matrix, slopes.map((d, i) => d * cotangent[i]));
    const recurrent = new Float64Array(n * n);
    for (let i = 0, at = 0; i < n; i++) {
      for (let j = 0; j < n; j++) recurrent[at++] = 0.5 * (bias[i] * state[j] + bias[j] * state[i]);
    }
    return masked(net, { input: outer(bias, x), bias, recurrent });
  }

  /* Weights that do not exist (between layers that do not touch, or from pixels to upper layers)
     do not learn. */
  function masked(net, gradient) {
    const { layers, looped } = net.data;
    if (looped) return gradient;
    for (let i = 0; i < net.n; i++) {
      for (let j = 0; j < net.n; j++) {
        if (!net.recurrent[i * net.n + j]) gradient.recurrent[i * net.n + j] = 0;
      }
      if (i >= layers[0].count) {
        gradient.input.fill(0, i * net.inputs, (i + 1) * net.inputs);
      }
    }
    return gradient;
  }

  function outer(a, b) {
    const found = new Float64Array(a.length * b.length);
    for (let i = 0, at = 0; i < a.length; i++) {
      for (let j = 0; j < b.length; j++) found[at++] = a[i] * b[j];
    }
    return found;
  }

  /* Gaussian elimination with partial pivoting; `matrix` and `right` are used up. */
  function solve(matrix, right) {
    const n = right.length;
    for (let k = 0; k < n; k++) {
      let best = k;
      for (let i = k + 1; i < n; i++) {
        if (Math.abs(matrix[i * n + k]) > Math.abs(matrix[best * n + k])) best = i;
      }
      if (best !== k) {
        for (let j = k; j < n; j++) {
          [matrix[k * n + j], matrix[best * n + j]] = [matrix[best * n + j], matrix[k * n + j]];
        }
        [right[k], right[best]] = [right[best], right[k]];
      }
      for (let i = k + 1; i < n; i++) {
        const factor = matrix[i * n + k] / matrix[k * n + k];
        if (factor === 0) continue;
        for (let j = k; j < n; j++) matrix[i * n + j] -= factor * matrix[k * n + j];
        right[i] -= factor * right[k];
      }
    }
    for (let i = n - 1; i >= 0; i--) {
      for (let j = i + 1; j < n; j++) right[i] -= matrix[i * n + j] * right[j];
      right[i] /= matrix[i * n + i];
    }
    return right;
  }

  /* Degrees between two gradients, over all their tensors; from the chord, which keeps the digits
     of small angles that an arc cosine loses. */
  function angle(one, two) {
    const names = ["input", "bias", "recurrent"];
    const sizes = [one, two].map((g) => Math.sqrt(names.reduce((a, k) => a + dot(g[k], g[k]), 0)));
    if (!sizes[0] || !sizes[1]) return NaN;
    let chord = 0;
    for (const name of names) {
      for (let i = 0; i < one[name].length; i++) {
        chord += (one[name][i] / sizes[0] - two[name][i] / sizes[1]) ** 2;
      }
    }
    return (2 * Math.asin(Math.min(1, Math.sqrt(chord) / 2)) * 180) / Math.PI;
  }

  /* The spectral norm of W: the larger of two extreme eigenvalues, by power iteration on W^2. */
  function spectralNorm(net, rounds = 60) {
    let vector = Float64Array.from({ length: net.n }, (_, i) => Math.sin(1 + 7 * i));
    let found = 0;
    for (let k = 0; k < rounds; k++) {
      const next = times(net.recurrent, times(net.recurrent, vector, net.n), net.n);
      found = norm(next);
      if (!found) return 0;
      vector = next.map((v) => v / found);
    }
    return Math.sqrt(found);
  }

  /* A step down the gradient; W stays within its bound, as in the library. */
  function learn(net, gradient, state, error, rate) {
    const moved = copy(net);
    for (const name of ["input", "bias", "recurrent"]) {
      for (let i = 0; i < moved[name].length; i++) moved[name][i] -= rate * gradient[name][i];
    }
    for (let k = 0, at = 0; k < net.outputs; k++) {
      moved.offset[k] -= rate * error[k];
      for (let i = 0; i < net.n; i++) moved.readout[at++] -= rate * error[k] * state[i];
    }
    const size = spectralNorm(moved);
    if (net.data.looped && size > net.radius) {
      for (let i = 0; i < moved.recurrent.length; i++) moved.recurrent[i] *= net.radius / size;
    }
    return moved;
  }

  return {
    network, copy, drive, image, step, settle, energy, readout, softmax, loss, normalise, nudged,
    contrast, exact, angle, spectralNorm, learn, norm, dot, bytes,
  };
})();
if (typeof module !== "undefined") module.exports = Engine;
