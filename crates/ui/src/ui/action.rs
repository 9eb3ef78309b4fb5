//! Every bindable intention, listed once: the table feeds the keymap, help, the palette, the docs and the conflict test.

use super::panes::{PANES, PaneEntry};

/// What help, palette and docs say of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionInfo {
    pub action: Action,
    /// The word in keymap files.
    pub id: &'static str,
    /// One or two words: hint lines and the palette.
    pub title: &'static str,
    /// One sentence.
    pub doc: &'static str,
    pub context: Context,
}

macro_rules! actions {
    ($($(#[$meta:meta])* $context:ident $word:literal $heading:literal {
        $($action:ident $id:literal $title:literal $doc:literal)+
    })+) => {
        /// Where a binding holds. A screen asks its own context first, then [`Context::Global`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Context { $($(#[$meta])* $context,)+ }

        impl Context {
            pub const ALL: &'static [Context] = &[$(Context::$context,)+];

            /// The word in keymap files.
            pub fn id(self) -> &'static str {
                match self { $(Context::$context => $word,)+ }
            }

            /// The heading in help.
            pub fn title(self) -> &'static str {
                match self { $(Context::$context => $heading,)+ }
            }
        }

        /// A named intention: what a key, the mouse or the palette asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Action {
            /// Go to a pane.
            Open(&'static PaneEntry),
            $($($action,)+)+
        }

        const TABLE: &[ActionInfo] = &[$($(Action::$action.info(),)+)+];

        impl Action {
            /// What help, palette and docs say of it.
            pub const fn info(self) -> ActionInfo {
                let (id, title, doc, context) = match self {
                    Action::Open(pane) => (pane.id, pane.id, pane.doc, Context::Global),
                    $($(Action::$action => ($id, $title, $doc, Context::$context),)+)+
                };
                ActionInfo { action: self, id, title, doc, context }
            }
        }
    };
}

/// Every action, in the order of help: the table, with the panes in front of the keys that walk through them.
pub fn actions() -> impl Iterator<Item = ActionInfo> {
    let walks = TABLE.iter().position(|a| a.action == Action::NextTab);
    let (before, after) = TABLE.split_at(walks.unwrap_or(0));
    let panes = PANES.iter().map(|pane| Action::Open(pane).info());
    before
        .iter()
        .copied()
        .chain(panes)
        .chain(after.iter().copied())
}

actions! {
    /// Everywhere; under an overlay or in a text field only where the key is no text.
    Global "global" "Everywhere" {
        Help "help" "help" "Show the keys of this screen, then all other keys."
        Guide "guide" "guide" "Answer questions: can this machine train it, which method, why unstable, how much data; with the facts of the run."
        Palette "palette" "palette" "Find any action, preset, run or theme by part of its name."
        Messages "messages" "messages" "Show all messages of this session in full, newest first."
        Leave "leave" "leave" "Leave the workbench; asks what to do with a live run and with unsaved answers."
        NextTab "next-tab" "next tab" "Go to the tab on the right."
        PreviousTab "previous-tab" "previous tab" "Go to the tab on the left."
        Theme "theme" "theme" "Choose the colours."
        SavePicture "save-picture" "picture" "Save this screen as a picture (SVG, and PNG beside it) in the working directory."
        Redraw "redraw" "redraw" "Redraw the screen."
        Suspend "suspend" "suspend" "Suspend to the shell (fg returns); runs keep training."
    }
    /// Anything with rows: the home screen, pickers, help.
    List "list" "Lists" {
        Up "up" "up" "Move up one row."
        Down "down" "down" "Move down one row."
        PageUp "page-up" "page up" "Move up one page."
        PageDown "page-down" "page down" "Move down one page."
        Top "top" "first" "Go to the first row."
        Bottom "bottom" "last" "Go to the last row."
        Accept "accept" "choose" "Choose the row, or confirm the text."
        Cancel "cancel" "back" "Close this or the messages, or clear the filter."
    }
    Home "home" "Home" {
        NewRun "new-run" "new run" "Open the wizard: from a goal to a run or a spec file, with explanations and a plan."
        EditPreset "edit-preset" "edit" "Show and edit every value of the selected preset; start it or save it as a file."
        Filter "filter" "filter" "Filter presets and runs: name, method, state, verdict."
        Sort "sort" "sort" "Sort runs by age, validation loss or name."
        Refresh "refresh" "refresh" "Refresh the list of runs."
        ResumeRun "resume" "resume" "Resume the selected run from its latest checkpoint."
        DeleteRun "delete-run" "delete" "Delete the selected run with its checkpoints; asks first, with what is lost and its size."
        ExportRun "export-run" "export" "Export the selected run, or the open one, for other programs: a Hugging Face folder, a PEFT adapter, a GGUF file."
        ChatWith "chat-with" "chat" "Chat with the best checkpoint of the selected run, or with the marked ones side by side."
        ChatBeside "chat-beside" "chat with both" "Chat with the run beside its parent or its base model."
        MarkRun "mark-run" "mark" "Mark or unmark the selected run, and go to the next row."
        MarkSweep "mark-sweep" "mark sweep" "Mark all runs of the same preset or spec file and the same data as the selected one; again to unmark them."
        CompareRuns "compare-runs" "compare" "Compare the marked runs; without marks, the selected run with its parent."
        CompareEvals "compare-evals" "evaluations" "Compare evaluation results of the marked runs; without marks, show those of the selected run."
    }
    Run "run" "Run" {
        Pause "pause" "pause" "Pause or resume the run; a stopped run resumes from its latest checkpoint, and its pipeline with it."
        Checkpoint "checkpoint" "checkpoint" "Save a checkpoint now."
        Evaluate "evaluate" "evaluate" "Run an evaluation now; if the run ended early, edit its spec and restart it."
        Sample "sample" "sample" "Sample from your own prompt."
        Tune "tune" "tune" "Change the learning rate or the clipping norm of the live run."
        Note "note" "note" "Add a note to the log; charts mark it."
        Stop "stop" "stop" "Stop the run without leaving."
        Ending "ending" "result" "Show how the run ended: best step, metrics and next steps; again for the charts."
        LiveStage "live-stage" "live stage" "Open the stage of the pipeline that trains now."
        ChartNext "chart-next" "next chart" "Select the next chart."
        ChartPrevious "chart-previous" "previous chart" "Select the previous chart."
        ChartLeft "chart-left" "left" "Select the chart on the left, or move the cursor left."
        ChartRight "chart-right" "right" "Select the chart on the right, or move the cursor right."
        ChartUp "chart-up" "up" "Select the chart above."
        ChartDown "chart-down" "down" "Select the chart below."
        Zoom "zoom" "zoom" "Toggle the selected chart between full screen and the grid."
        Back "back" "back" "Close the messages; leave the cursor, the filter or the full-screen chart."
        ZoomIn "zoom-in" "zoom in" "Show fewer steps."
        ZoomOut "zoom-out" "zoom out" "Show more steps."
        PanLeft "pan-left" "pan left" "Show earlier steps."
        PanRight "pan-right" "pan right" "Show later steps."
        ResetView "reset-view" "reset" "Reset to all steps, linear scale and default smoothing."
        ChartCursor "chart-cursor" "cursor" "Show values under a cursor."
        LogScale "log-scale" "log scale" "Switch between a linear and a logarithmic axis."
        Smooth "smooth" "smoothing" "Increase smoothing; after the highest level, none."
        ShowBatch "show-batch" "batch" "Show the batch of the step under the cursor, or of the latest step."
        FollowAdvice "follow-advice" "advice" "Apply the settings that a finding advises: to the live run, or in a branch from a checkpoint or from the start."
        UndoRescue "undo-rescue" "undo rescue" "Undo the latest rescue; shows first why it happened and what would be discarded."
        FilterCharts "filter-charts" "filter" "Filter charts by name."
        LogUp "log-up" "older log" "Scroll the log up."
        LogDown "log-down" "newer log" "Scroll the log down."
    }
    Chat "chat" "Chat" {
        Send "send" "send" "Send the turn, or complete the text; an empty line continues a truncated answer."
        ToolResult "tool-result" "tool result" "Send what is typed as the result of the tool call that waits for one."
        NewLine "new-line" "new line" "Insert a line break into the prompt."
        StopAnswer "stop-answer" "stop" "Stop generating; otherwise leave the prompt, so that single keys work."
        Checkpoints "checkpoints" "model" "Choose a model: a checkpoint, a model folder, a .gguf file."
        AddModel "add-model" "add model" "Add a model beside it, up to three: same turns, same settings, same seed."
        DropModel "drop-model" "remove" "Remove the selected model."
        NextModel "next-model" "next model" "Select the next model; in a narrow window, show it."
        NextAdapter "next-adapter" "adapter" "Answer with the model's next adapter; after the last one, the base alone."
        Settings "settings" "settings" "Temperature, top-k, top-p, min-p, penalty, seed, length, stop strings, context, system prompt, tools."
        Resend "resend" "resend" "Regenerate the last answers."
        EditTurn "edit-turn" "edit" "Edit and resend the last turn; again for the turn before."
        TokenColours "token-colours" "colours" "Colour tokens by probability, by entropy, or not."
        ShowPrompt "show-prompt" "prompt" "Show the prompts as rendered by the chat templates; again for the conversation."
        Thoughts "thoughts" "thoughts" "Unfold the thoughts of answers, or fold them: they are folded once the final message begins."
        SaveChat "save-chat" "save" "Save the conversation as Markdown and as training rows."
        EarlierPrompt "earlier-prompt" "earlier" "Recall the previous prompt."
        LaterPrompt "later-prompt" "later" "Recall the next prompt."
        ScrollUp "scroll-up" "scroll up" "Scroll the text up."
        ScrollDown "scroll-down" "scroll down" "Scroll the text down."
        ClearChat "clear-chat" "clear" "Start a new conversation; asks first where answers are not saved."
    }
    Data "data" "Data" {
        NextRow "next-row" "next row" "Show the next row."
        PreviousRow "previous-row" "previous" "Show the previous row."
        JumpRow "jump-row" "go to row" "Go to a row by number."
        SearchData "search-data" "search" "Search: show only rows that contain a text."
        DataMode "data-mode" "view" "Show the row as tokens, as rendered text, or as stored."
        OpenData "open-data" "open data" "Inspect a file, a folder or a glob: rows, lengths, duplicates, broken text."
        DataTokenizer "data-tokenizer" "tokenizer" "Use another tokenizer for the same data."
        DataAgain "data-again" "reload" "Reload the data."
    }
    Plan "plan" "Plan" {
        Less "less" "less" "Halve the number, or select the previous option."
        More "more" "more" "Double the number, or select the next option."
        PlanTarget "plan-target" "target" "Choose a preset, the open run or a reference model."
        PlanDevice "plan-device" "device" "Choose this machine or a GPU from the table."
        PlanApply "plan-apply" "make it fit" "Apply the changes that make the plan fit its device."
        PlanReset "plan-reset" "start over" "Undo all changes to the plan."
    }
    Hardware "hardware" "Hardware" {
        OtherMachine "other-machine" "other machine" "Switch between this machine and the open run's machine."
    }
    Samples "samples" "Samples" {
        SampleEarlier "sample-earlier" "earlier" "Show an earlier sample in the selected column."
        SampleLater "sample-later" "later" "Show a later sample in the selected column."
        NextText "next-text" "next text" "Select the next text."
        FullText "full-text" "full screen" "Show only the selected text, or all."
        OtherPrompt "other-prompt" "prompt" "Show the samples of another prompt or held-out question."
        AskSample "ask-sample" "sample" "Sample from your own prompt."
    }
    /// Answers that a model wrote and learned from.
    Rollouts "rollouts" "Rollouts of GRPO, RLOO and PPO" {
        RolloutEarlier "rollout-earlier" "earlier" "Show the completions of an earlier step."
        RolloutLater "rollout-later" "later" "Show the completions of a later step."
        RolloutSort "rollout-sort" "sort" "Sort groups by order of sampling, reward, reward range, length or NLL (negative log-probability per token)."
        RolloutFilter "rollout-filter" "only" "Filter groups: all, those with a learning signal, those with equal rewards, those with truncated completions."
        RolloutSearch "rollout-search" "search" "Search: show only groups whose prompt or completions contain a text."
        RolloutColours "rollout-colours" "colours" "Colour tokens by probability, by log-ratio to the reference, by advantage, or not."
        PinPrompt "pin-prompt" "pin" "Show the completions of this prompt across steps; again for those of one step."
        CompareSteps "compare-steps" "compare" "Compare other steps with this one; again to stop."
        HeldOut "held-out" "held out" "Switch between held-out prompts with step times and the completions."
    }
    /// Panes that draw curves.
    Chart "chart" "Panes with charts" {
        SaveChart "save-chart" "save" "Save the charts of the pane as a picture (SVG, and PNG beside it) in the working directory."
    }
    /// Runs beside each other.
    Compare "compare" "Comparison of runs" {
        CompareBy "compare-by" "axis" "Align curves by step, by tokens or by time."
        NextCurve "next-curve" "next curve" "Show the next metric."
        PreviousCurve "previous-curve" "previous curve" "Show the previous metric."
        PickRun "pick-run" "add" "Add a run, or the open log."
        DropRun "drop-run" "remove" "Remove the last run."
        CompareAgain "compare-again" "reload" "Reload the logs; those of live runs reload every few seconds."
        CompareTable "compare-table" "table" "Switch between the ranking of runs that differ in a few settings and the table of all settings and metrics."
        CompareLog "compare-log" "log scale" "Switch between a linear and a logarithmic axis."
        CompareSmooth "compare-smooth" "smoothing" "Cycle the smoothing of the curves."
        CompareTasks "compare-tasks" "evaluations" "Show the evaluation results of the same runs."
    }
    /// What models made of tasks.
    Evals "evals" "Comparison of evaluations" {
        EvalsAdd "evals-add" "add" "Add a run, or an evaluated model."
        EvalsDrop "evals-drop" "remove" "Remove the last model."
        EvalsAgain "evals-again" "reload" "Reload the answers."
        EvalsOnly "evals-only" "only" "List all items, or those that flipped, were won, were lost, or were solved by none."
    }
    /// The rows of a past step.
    Batch "batch" "Batch of a step" {
        BatchEarlier "batch-earlier" "previous step" "Show the batch of the previous step."
        BatchLater "batch-later" "next step" "Show the batch of the next step."
        BatchStep "batch-step" "go to step" "Go to a step by number."
        BatchSort "batch-sort" "sort" "Sort rows by loss, highest first, or in batch order."
        FromHere "from-here" "from here" "Roll back to the checkpoint before this step, or branch from it."
    }
    /// The runs of several machines.
    Fleet "fleet" "Fleet" {
        FleetSort "fleet-sort" "sort" "Sort runs by age, host, loss or time left; live ones stay first."
    }
    /// The question what becomes of a live run.
    Leave "leave" "Leaving a live run" {
        LeaveRunning "leave-running" "leave it running" "Close the workbench; the run keeps training."
        StopAfterCheckpoint "stop-after-checkpoint" "stop after a checkpoint" "Save a checkpoint, then stop the run."
        StopNow "stop-now" "stop now" "Stop without a checkpoint: steps since the last one are lost."
    }
    /// The editor of a spec.
    Editor "editor" "Editor of a spec" {
        SearchSpec "search-spec" "search" "Find a key by name or description."
        UndoEdit "undo" "undo" "Undo the last change."
        RedoEdit "redo" "redo" "Redo the change."
        ResetValue "reset-value" "reset" "Reset to the inherited value."
        OnlyChanges "only-changes" "changes" "Show only values that differ from the parent, or all."
        ViewYaml "view-yaml" "yaml" "Preview the file that would be written."
        SaveSpec "save-spec" "save as" "Save as a new file; never overwrites."
        StartSpec "start-spec" "start" "Start training."
    }
    /// Where letters are text.
    Text "text" "Text fields" {
        KillLine "kill-line" "clear line" "Delete the text before the cursor."
    }
    /// Text fields that hold a path.
    Path "path" "Paths" {
        Complete "complete" "complete" "Complete the path as far as it is unambiguous."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_words_of_actions_are_unique() {
        let mut ids = HashSet::new();
        for info in actions() {
            assert_eq!(info.action.info(), info);
            assert!(ids.insert(info.id), "{} twice", info.id);
            assert!(
                info.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
                "{}",
                info.id
            );
            assert!(
                info.doc.ends_with('.') && info.title.len() <= 24,
                "{}",
                info.id
            );
        }
    }
}
