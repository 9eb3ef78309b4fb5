import json, os, time
from transformers import TrainerCallback

class LlmtuiLog(TrainerCallback):
    """Appends what a Trainer logs to OUTPUT_DIR/llmtui.jsonl; `llmtui watch OUTPUT_DIR` shows it live."""
    def write(self, args, state, **row):
        if state.is_world_process_zero:
            os.makedirs(args.output_dir, exist_ok=True)
            with open(os.path.join(args.output_dir, "llmtui.jsonl"), "a") as file:
                file.write(json.dumps({"step": state.global_step, "time": time.time(), **row}, default=str) + "\n")

    def on_train_begin(self, args, state, control, model=None, **_):
        config = {key: getattr(args, key) for key in ("learning_rate", "warmup_steps", "max_grad_norm")}
        config |= {"n_params": model.num_parameters(), "vocab_size": model.config.vocab_size}
        self.write(args, state, event="begin", max_steps=state.max_steps, config=config)

    def on_log(self, args, state, control, logs=None, **_):
        self.write(args, state, **(logs or {}))

    def on_train_end(self, args, state, control, **_):
        self.write(args, state, event="end")

# Trainer(..., callbacks=[LlmtuiLog()])
