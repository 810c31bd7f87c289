# %% [markdown]
# Figures from `results.csv`: those of `report.html`, to be drawn again and changed. The cells need
# pandas and matplotlib, and a job in which something gave a value. Jupyter (with jupytext), VS Code
# and Spyder open this file as a notebook. `docs/fields.md` has the columns.

# %%
import pandas as pd

table = pd.read_csv("autotuning_results/results.csv", parse_dates=["finished_at"])
ran = table.dropna(subset=["value"]).sort_values("finished_at").reset_index(drop=True)
ran["score"] = -ran.value if ran.metric[0] == "latency" else ran.value  # more is better

# %% The best value over time.
ran.assign(best=ran.score.cummax().abs()).plot("finished_at", "best", drawstyle="steps-post")

# %% The best value of each ZeRO stage at each micro-batch size.
best = ran.loc[ran.groupby(["zero_stage", "micro_batch"]).score.idxmax()]
best.pivot(index="micro_batch", columns="zero_stage", values="value").plot(marker="o")

# %% The effect of a knob: each of its values against the first one, all other knobs equal. `knob` can be any of
# `knobs`. A column with a dot in its name is a searched key.
knob = "zero_stage"
knobs = ["zero_stage", "micro_batch", "accumulation_steps", "num_gpus", "recompute"]
knobs += [name for name in table if "." in name and not name.endswith(".stage")]
others = [name for name in knobs if name != knob]
pairs = ran.astype(dict.fromkeys(others, str)).pivot_table("value", others, knob)
pairs.div(pairs.iloc[:, 0], axis=0).plot.box(title=knob, ylabel="times as large")

# %% Predicted against measured speed of the built-in step.
ran.plot.scatter("predicted_throughput", "throughput")

# %% The front: nothing else is better in value, memory or GPUs without being worse in another.
ran["memory"] = ran.predicted_target_memory_bytes.where(
    ran.predicted_target_memory_bytes > 0, ran.peak_memory_bytes)
beaten = [((ran.score >= one.score) & (ran.memory <= one.memory) & (ran.num_gpus <= one.num_gpus)
           & ((ran.score > one.score) | (ran.memory < one.memory) | (ran.num_gpus < one.num_gpus))
           ).any() for one in ran.itertuples()]
front = ran[[not one for one in beaten]]
front.plot.scatter("memory", "value", c="num_gpus", colormap="viridis")
print(front[["name", "value", "num_gpus", "memory"]])
