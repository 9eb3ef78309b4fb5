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
        Help "help" "help" "Show the keys of this screen, then all others."
        Guide "guide" "guide" "Answer questions: can this machine train it, which method, why unstable, how much data; with the facts of the run."
        Palette "palette" "palette" "Find any action, preset, run or theme by typing a part of its name."
        Leave "leave" "leave" "Leave the workbench; a live run asks first whether it should go on."
        NextTab "next-tab" "next tab" "Go to the tab on the right."
        PreviousTab "previous-tab" "previous tab" "Go to the tab on the left."
        Theme "theme" "theme" "Choose the colours."
        SavePicture "save-picture" "picture" "Save this screen as a picture (SVG, and PNG beside it) in the working directory."
        Redraw "redraw" "redraw" "Draw the whole screen again."
        Suspend "suspend" "suspend" "Go back to the shell; fg returns. Runs go on."
    }
    /// Anything with rows: the home screen, pickers, help.
    List "list" "Lists" {
        Up "up" "up" "One row up."
        Down "down" "down" "One row down."
        PageUp "page-up" "page up" "A page up."
        PageDown "page-down" "page down" "A page down."
        Top "top" "first" "To the first row."
        Bottom "bottom" "last" "To the last row."
        Accept "accept" "choose" "Choose the row, or finish the text."
        Cancel "cancel" "back" "Close this, or the messages over the screen, or clear the filter."
    }
    Home "home" "Home" {
        NewRun "new-run" "new run" "Let the wizard ask, explain and plan: from a goal to a run or a spec file."
        EditPreset "edit-preset" "edit" "Look at every value of the selected preset, change some, start it or save it as a file."
        Filter "filter" "filter" "Show only runs whose name, preset, method, state or verdict contains a text."
        Sort "sort" "sort" "Sort runs by age, validation loss or name."
        Refresh "refresh" "refresh" "Look for runs again."
        ResumeRun "resume" "resume" "Let the selected run go on from its newest checkpoint."
        ChatWith "chat-with" "chat" "Chat with the best checkpoint of the selected run, or with the marked ones side by side."
        ChatBeside "chat-beside" "chat with both" "Chat with the selected run and the one that it came from, side by side."
        MarkRun "mark-run" "mark" "Mark or unmark the selected run, and go to the next row."
        CompareRuns "compare-runs" "compare" "Compare the marked runs; without marks, the selected one with the one that it came from."
        CompareEvals "compare-evals" "evaluations" "Show what the marked runs made of evaluation tasks, beside each other; without marks, the selected one."
    }
    Run "run" "Run" {
        Pause "pause" "pause" "Pause the run, or let it go on; a run that was stopped goes on from its newest checkpoint."
        Checkpoint "checkpoint" "checkpoint" "Save a checkpoint now."
        Evaluate "evaluate" "evaluate" "Measure the validation loss now; of a run that ended early, edit its spec and start it anew."
        Sample "sample" "sample" "Let the model continue a prompt of yours."
        Tune "tune" "tune" "Change the learning rate or the clipping norm while the run goes on."
        Note "note" "note" "Write a note into the log; charts mark it."
        Stop "stop" "stop" "Stop the run and stay here."
        Ending "ending" "result" "Show how the run ended: its best step, its figures and what to do next; once more, the charts."
        ChartNext "chart-next" "next chart" "Select the next chart."
        ChartPrevious "chart-previous" "previous chart" "Select the previous chart."
        ChartLeft "chart-left" "left" "Select the chart on the left, or move the cursor back."
        ChartRight "chart-right" "right" "Select the chart on the right, or move the cursor on."
        ChartUp "chart-up" "up" "Select the chart above."
        ChartDown "chart-down" "down" "Select the chart below."
        Zoom "zoom" "zoom" "Show the selected chart on the whole screen, or all charts again."
        Back "back" "back" "Close the messages over the screen; leave the cursor, the filter or the full-screen chart."
        ZoomIn "zoom-in" "closer" "Show fewer steps."
        ZoomOut "zoom-out" "wider" "Show more steps."
        PanLeft "pan-left" "pan left" "Show earlier steps."
        PanRight "pan-right" "pan right" "Show later steps."
        ResetView "reset-view" "reset" "Show all steps again, linear, with the usual smoothing."
        ChartCursor "chart-cursor" "cursor" "Read values under a cursor."
        LogScale "log-scale" "log scale" "Switch between a linear and a logarithmic axis."
        Smooth "smooth" "smoothing" "Smooth the line more; after the strongest level, not at all."
        ShowBatch "show-batch" "batch" "Show the rows that the step under the cursor learned from, or those of the newest step."
        FollowAdvice "follow-advice" "advice" "Change the settings that a finding advises: in the live run, or in a branch from a checkpoint or from the start."
        UndoRescue "undo-rescue" "undo rescue" "Undo the newest rescue: what it was for and what would be given up is shown first."
        FilterCharts "filter-charts" "filter" "Show only charts whose name contains a text."
        LogUp "log-up" "older log" "Scroll the log back."
        LogDown "log-down" "newer log" "Scroll the log on."
    }
    Chat "chat" "Chat" {
        Send "send" "send" "Send the turn, or let the model continue the text; an empty line lets an answer that was cut go on."
        NewLine "new-line" "new line" "Break the line in the prompt."
        StopAnswer "stop-answer" "stop" "Stop the answers; otherwise leave the prompt, so that single keys work."
        Checkpoints "checkpoints" "model" "Choose the model to talk to: a checkpoint, a model folder, a .gguf file."
        AddModel "add-model" "beside" "Put another model beside, three at most: same turns, same settings, same seed."
        DropModel "drop-model" "take away" "Take the marked model away."
        NextModel "next-model" "next model" "Mark the next model; in a narrow window, show it."
        NextAdapter "next-adapter" "adapter" "Answer with the model's next adapter, behind the last one with the base alone."
        Settings "settings" "settings" "Temperature, top-k, top-p, min-p, penalty, seed, length, stop strings, context, system prompt."
        Resend "resend" "resend" "Ask the last turn again; its answers are replaced."
        EditTurn "edit-turn" "edit" "Bring the last turn back to change it and send it again; once more, the turn before."
        TokenColours "token-colours" "colours" "Colour tokens by probability, then by entropy, then not."
        ShowPrompt "show-prompt" "prompt" "Show what the models read, rendered by their templates; once more, the conversation."
        SaveChat "save-chat" "save" "Write the conversation as Markdown and as rows that a run can learn from."
        EarlierPrompt "earlier-prompt" "earlier" "Bring back the prompt before this one."
        LaterPrompt "later-prompt" "later" "Bring back the prompt after this one."
        ScrollUp "scroll-up" "scroll up" "Scroll the text back."
        ScrollDown "scroll-down" "scroll down" "Scroll the text on."
        ClearChat "clear-chat" "clear" "Forget the texts on this screen and begin a new conversation."
    }
    Data "data" "Data" {
        NextRow "next-row" "next row" "Show the next row."
        PreviousRow "previous-row" "row before" "Show the row before."
        JumpRow "jump-row" "to a row" "Go to a row by its number."
        SearchData "search-data" "search" "Show only rows that contain a text."
        DataMode "data-mode" "view" "Show the row as tokens, as rendered text, or as it is written."
        OpenData "open-data" "open data" "Look at a file, a folder or a glob: rows, lengths, duplicates, broken text."
        DataTokenizer "data-tokenizer" "tokenizer" "Read the same data with another tokenizer."
        DataAgain "data-again" "look again" "Read the same data again."
    }
    Plan "plan" "Plan" {
        Less "less" "less" "Halve the number, or take the word before."
        More "more" "more" "Double the number, or take the next word."
        PlanTarget "plan-target" "plan what" "Choose a preset, the run on the screen, or a reference model."
        PlanDevice "plan-device" "on what" "Choose this machine or a GPU of the table."
        PlanApply "plan-apply" "make it fit" "Take the changes that make the plan fit its device."
        PlanReset "plan-reset" "start over" "Undo all changes to the plan."
    }
    Hardware "hardware" "Hardware" {
        OtherMachine "other-machine" "other machine" "Show this machine, or the machine of the run on the screen."
    }
    Samples "samples" "Samples" {
        SampleEarlier "sample-earlier" "earlier" "Show an earlier sample in the marked place."
        SampleLater "sample-later" "later" "Show a later sample in the marked place."
        NextText "next-text" "next text" "Mark the next text."
        FullText "full-text" "full screen" "Show the marked text alone, or all again."
        OtherPrompt "other-prompt" "prompt" "Show the samples of another prompt or held-out question."
        AskSample "ask-sample" "sample" "Let the model continue a prompt of yours."
    }
    /// Answers that a model wrote and learned from.
    Rollouts "rollouts" "Rollouts of GRPO, RLOO and PPO" {
        RolloutEarlier "rollout-earlier" "earlier" "Show the answers of an earlier step."
        RolloutLater "rollout-later" "later" "Show the answers of a later step."
        RolloutSort "rollout-sort" "sort" "Sort groups as written, by reward, by range of rewards, by length, by NLL (negative log-probability of a token)."
        RolloutFilter "rollout-filter" "only" "Show all groups, only those that teach, only those with equal rewards, only those with cut answers."
        RolloutSearch "rollout-search" "search" "Show only groups whose prompt or answers contain a text."
        RolloutColours "rollout-colours" "colours" "Colour tokens by probability, by their distance from the reference, by advantage, or not."
        PinPrompt "pin-prompt" "pin" "Show the answers to this prompt over the steps; once more, those of the step."
        CompareSteps "compare-steps" "compare" "Compare other steps with this one from now on; once more, no longer."
        HeldOut "held-out" "held out" "Show held-out prompts and the time of a step, or the answers again."
    }
    /// Panes that draw curves.
    Chart "chart" "Panes with charts" {
        SaveChart "save-chart" "save" "Save the charts of the pane as a picture (SVG, and PNG beside it) in the working directory."
    }
    /// Runs beside each other.
    Compare "compare" "Comparison of runs" {
        CompareBy "compare-by" "axis" "Lay curves over each other by step, by tokens, by time."
        NextCurve "next-curve" "next curve" "Show the next metric."
        PreviousCurve "previous-curve" "curve before" "Show the metric before."
        PickRun "pick-run" "add" "Add a run, or the log on the screen."
        DropRun "drop-run" "take away" "Take the last run away."
        CompareAgain "compare-again" "read again" "Read the logs again; those of live runs are read every few seconds."
        CompareLog "compare-log" "log scale" "Switch between a linear and a logarithmic axis."
        CompareSmooth "compare-smooth" "smoothing" "Smooth the curves, more, not at all."
        CompareTasks "compare-tasks" "evaluations" "Show what the same runs made of evaluation tasks."
    }
    /// What models made of tasks.
    Evals "evals" "Evaluations beside each other" {
        EvalsAdd "evals-add" "add" "Add a run, or a model that llmtui eval asked."
        EvalsDrop "evals-drop" "take away" "Take the last model away."
        EvalsAgain "evals-again" "read again" "Read the answers again."
        EvalsOnly "evals-only" "only" "List all items, those that flipped, those won, those lost, those that nobody gets."
    }
    /// The rows of a past step.
    Batch "batch" "Batch of a step" {
        BatchEarlier "batch-earlier" "step before" "Show the rows of the step before."
        BatchLater "batch-later" "step after" "Show the rows of the step after."
        BatchStep "batch-step" "to a step" "Go to a step by its number."
        BatchSort "batch-sort" "sort" "Show rows with the highest loss first, or in the order in which the step read them."
        FromHere "from-here" "from here" "Roll the run back to the checkpoint before this step, or branch a new run from it."
    }
    /// The runs of several machines.
    Fleet "fleet" "Fleet" {
        FleetSort "fleet-sort" "sort" "Sort runs by age, host, loss or the time that is left; live ones stay first."
    }
    /// The question what becomes of a live run.
    Leave "leave" "Leaving a live run" {
        LeaveRunning "leave-running" "leave it running" "Close the workbench; the run goes on."
        StopAfterCheckpoint "stop-after-checkpoint" "stop after a checkpoint" "Save a checkpoint, then stop the run."
        StopNow "stop-now" "stop now" "Stop without a checkpoint: steps since the last one are lost."
    }
    /// The editor of a spec.
    Editor "editor" "Editor of a spec" {
        SearchSpec "search-spec" "search" "Find a key by its name or its description."
        UndoEdit "undo" "undo" "Take the last change back."
        RedoEdit "redo" "redo" "Bring back what was taken back."
        ResetValue "reset-value" "reset" "Let the parent's value be in force again."
        OnlyChanges "only-changes" "changes" "Show only what differs from the parent, or everything again."
        ViewYaml "view-yaml" "yaml" "Show the file that would be written."
        SaveSpec "save-spec" "save as" "Write a new file; none is ever overwritten."
        StartSpec "start-spec" "start" "Train this now."
    }
    /// Where letters are text.
    Text "text" "Text fields" {
        KillLine "kill-line" "clear line" "Delete the text before the cursor."
    }
    /// Text fields that hold a path.
    Path "path" "Paths" {
        Complete "complete" "complete" "Complete the path, as far as it is unambiguous."
    }
}

impl Action {
    pub fn by_id(id: &str) -> Option<Action> {
        actions().find(|a| a.id == id).map(|a| a.action)
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
            assert_eq!(Action::by_id(info.id), Some(info.action));
        }
    }
}
