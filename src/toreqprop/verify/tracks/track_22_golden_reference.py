"""Track 22: every registered kernel against the NumPy reference, state by state."""

from __future__ import annotations

from toreqprop.kernels import KERNELS
from toreqprop.kernels.reference_kernel import NumpyKernel
from toreqprop.verify import harness
from toreqprop.verify.faults import KERNEL_FAULTS, FaultyKernel
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

SHOWN = (1, 2, 3, 5, 10, 20, 29, 30)


def run(context: Context) -> Measurements:
    shapes = context.level.pick(harness.SHAPES[:3], harness.SHAPES, harness.SHAPES)
    chosen = harness.cases(shapes, context.seeds)
    context.report(f"{len(KERNELS)} kernels in {len(chosen)} cases")
    chosen = [harness.decided(case) for case in chosen]
    results = harness.compare_all(chosen=chosen)
    if context.sabotage is not None:
        wrong = FaultyKernel(NumpyKernel(), context.sabotage)
        results += [harness.compare(wrong, case) for case in chosen]
    table = harness.per_step_table(results)
    kernels = sorted({r.kernel for r in results})
    quantities = list(results[0].quantities)

    def worst(kernel: str, dtype: str) -> list[harness.Comparison]:
        return [r for r in results if r.kernel == kernel and r.case.dtype == dtype]

    values: dict[str, float] = {"kernels": len(kernels), "cases": len(chosen)}
    for dtype in harness.BOUNDS:
        mine = [r for r in results if r.case.dtype == dtype]
        values[f"{dtype}_state"] = max(s.error for r in mine for s in r.steps)
        values[f"{dtype}_quantity"] = max(v for r in mine for v in r.quantities.values())
        values[f"{dtype}_steps"] = sum(len(r.steps) for r in mine)
    totals = tuple(
        (
            kernel,
            dtype,
            max(s.error for r in worst(kernel, dtype) for s in r.steps),
            *(max(r.quantities[q] for r in worst(kernel, dtype)) for q in quantities),
            harness.BOUNDS[dtype],
            sum(len(r.steps) for r in worst(kernel, dtype)),
        )
        for kernel in kernels
        for dtype in harness.BOUNDS
    )
    steps = tuple(
        (phase, step, *(table[k, d].get(f"{phase} {step}") for k in kernels for d in ORDER))
        for phase in ("free", "center", "shift")
        for step in SHOWN
    )
    return Measurements(
        values,
        tables=(
            Table(
                "Largest deviation from the reference over all cases (states absolute, the rest "
                "relative)",
                (
                    Column("Kernel"),
                    Column("dtype"),
                    Column("Max Hidden Diff", ".2e"),
                    *(Column(q, ".2e") for q in quantities),
                    Column("Threshold", ".0e"),
                    Column("Steps Compared", "d"),
                ),
                totals,
            ),
            Table(
                "Step-by-Step Comparison (first/last steps of the runs with a fixed number)",
                (
                    Column("Phase"),
                    Column("Step", "d"),
                    *(Column(f"{k}, {d}", ".2e") for k in kernels for d in ORDER),
                ),
                steps,
            ),
        ),
        figures=(
            Figure(
                "Largest deviation of any neuron in the free phase, float32",
                "relaxation step",
                "max difference",
                tuple(
                    Series(
                        kernel,
                        tuple(range(1, harness.FIXED_STEPS + 1)),
                        tuple(
                            max(table[kernel, "float32"].get(f"free {s}", 0.0), 1e-10)
                            for s in range(1, harness.FIXED_STEPS + 1)
                        ),
                    )
                    for kernel in kernels
                ),
                lines={"bound": harness.BOUNDS["float32"]},
                log_y=True,
            ),
        ),
    )


ORDER = ("float32", "float64")


def bounds(level: Level) -> tuple[Bound, ...]:
    listed = [at_least("kernels", 2, "kernels compared with the reference")]
    for dtype, limit in harness.BOUNDS.items():
        listed += [
            at_most(f"{dtype}_state", limit, f"largest deviation of any neuron, {dtype}"),
            at_most(
                f"{dtype}_quantity", limit, f"of output, energy, updates and residuals, {dtype}"
            ),
        ]
    return tuple(listed)


TRACK = Track(
    number=22,
    title="Golden Reference Harness",
    claim="Every kernel matches the NumPy reference within numerical tolerance, at every "
    "relaxation step of every phase.",
    experiment="Compare hidden states at each relaxation step, outputs, energies and each "
    "parameter's update, in float32 and float64, over several shapes.",
    run=run,
    bounds=bounds,
    sabotages=tuple(Sabotage(f, f"a fourth kernel with this fault: {f}") for f in KERNEL_FAULTS),
    statements=(
        "{kernels} kernels in {cases} cases each: the largest deviation of any neuron at any step "
        "was {float32_state:.2e} in float32 ({float32_steps} states) and {float64_state:.2e} in "
        "float64 ({float64_steps} states).",
        "Outputs, energies, updates and residuals deviated by at most {float32_quantity:.2e} and "
        "{float64_quantity:.2e}.",
    ),
    cost=15,
)
