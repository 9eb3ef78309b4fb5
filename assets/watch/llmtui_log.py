import contextlib, json, os, time, warnings
from transformers import TrainerCallback

class LlmtuiLog(TrainerCallback):
    """Appends what a Trainer logs to OUTPUT_DIR/llmtui.jsonl; `llmtui watch OUTPUT_DIR` shows it live. It never ends a training."""
    def write(self, args, state, **row):
        if state.is_world_process_zero:
            try:
                os.makedirs(args.output_dir, exist_ok=True)
                with open(os.path.join(args.output_dir, "llmtui.jsonl"), "a") as file:
                    file.write(json.dumps({"step": state.global_step, "time": time.time(), **row}, default=str) + "\n")
            except OSError as error:
                warnings.warn(f"llmtui.jsonl: {error}")

    def on_train_begin(self, args, state, control, model=None, **_):
        config = {"learning_rate": args.learning_rate, "max_grad_norm": args.max_grad_norm}
        with contextlib.suppress(Exception):  # not every model has a config or a vocabulary
            config["warmup_steps"] = args.get_warmup_steps(state.max_steps)
            config["n_params"] = getattr(model, "num_parameters", lambda: sum(p.numel() for p in model.parameters()))()
            config["vocab_size"] = model.config.get_text_config().vocab_size
        self.write(args, state, event="begin", max_steps=state.max_steps, config=config)

    def on_log(self, args, state, control, logs=None, **_):
        self.write(args, state, **(logs or {}))

    def on_train_end(self, args, state, control, **_):
        self.write(args, state, event="end")

# Trainer(..., callbacks=[LlmtuiLog()])
