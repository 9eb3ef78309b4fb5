//! What a model keeps of a text, so that each token is computed once: keys and values of attention (the KV cache), states of
//! other mixers; and of several texts of different lengths, with the pieces that the current pass appends.

mod rows;
mod state;

use super::ModelConfig;
use crate::kernels::attention::{Heads, Piece};
use crate::kernels::numbers::Storage;
use rows::HeadRows;
use state::Snapshot;
pub(crate) use state::{State, StateShape};

/// The largest prefill chunk, in tokens: bounds the activations of long prompts, and what a layer with a sliding window caches
/// beyond its window.
pub(crate) const CHUNK: usize = 512;

/// Copies of the states of a text that are kept at once: of the previous prompt, of the newest shortly before its end and at its end.
pub(crate) const SNAPSHOTS: usize = 3;

/// What a model's caches have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KvShape<'a> {
    pub heads: Heads,
    pub blocks: &'a [BlockShape],
    /// The dtype of keys and values.
    pub storage: Storage,
}

impl KvShape<'_> {
    /// Bytes of a text of `tokens`.
    pub fn bytes(&self, tokens: usize) -> u64 {
        let bytes = |block: &BlockShape| match block {
            BlockShape::Attention(window) => {
                let tokens = window.map_or(tokens, |window| tokens.min(window + CHUNK));
                // Whole words, for keys and for values.
                2 * size_of::<f32>() * self.storage.words(tokens * self.heads.kv_width())
            }
            BlockShape::Latent => {
                size_of::<f32>() * self.storage.words(tokens * self.heads.kv_width())
            }
            BlockShape::State(state) => state.bytes(),
        };
        self.blocks.iter().map(bytes).sum::<usize>() as u64
    }
}

/// What a block keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockShape {
    /// Keys and values, of attention with this sliding window.
    Attention(Option<usize>),
    /// Latent vectors with their keys, of latent attention.
    Latent,
    State(StateShape),
}

impl BlockShape {
    /// Those of all blocks of a model.
    pub fn of(config: &ModelConfig) -> Vec<BlockShape> {
        let block = |layer| match config.mixer(layer) {
            None if config.mla.is_some() => BlockShape::Latent,
            None => BlockShape::Attention(config.window(layer)),
            Some(mixer) => BlockShape::State(StateShape {
                conv: (mixer.conv_len() - 1) * mixer.conv_channels(config.d_model),
                memory: mixer.state_len(),
            }),
        };
        (0..config.n_layer).map(block).collect()
    }
}

impl ModelConfig {
    /// Bytes of the states of one text, whatever its length: of blocks without attention.
    pub fn state_bytes(&self) -> usize {
        let blocks = BlockShape::of(self).into_iter().map(|block| match block {
            BlockShape::Attention(_) | BlockShape::Latent => 0,
            BlockShape::State(state) => state.bytes(),
        });
        blocks.sum()
    }
}

/// Keys and values of one layer of one text: for each key/value head `capacity` rows of head_dim.
struct LayerCache {
    keys: HeadRows,
    /// `None` if keys are values, too: latent vectors.
    values: Option<HeadRows>,
    capacity: usize,
    /// The sliding window; older tokens are dropped when space is needed.
    window: Option<usize>,
    /// Tokens at the beginning of the text that are no longer cached.
    dropped: usize,
}

impl LayerCache {
    fn new(shape: KvShape, capacity: usize, block: BlockShape) -> Self {
        let (window, has_values) = match block {
            BlockShape::Attention(window) => (window, true),
            _ => (None, false),
        };
        let capacity = window.map_or(capacity, |window| capacity.min(window + CHUNK));
        let empty = || HeadRows::zeros(shape.storage, capacity * shape.heads.kv_width());
        LayerCache {
            keys: empty(),
            values: has_values.then(empty),
            capacity,
            window,
            dropped: 0,
        }
    }

    /// Grows the buffers, keeping the rows.
    fn grown(self, shape: KvShape, capacity: usize, len: usize) -> Self {
        let block = match self.values {
            Some(_) => BlockShape::Attention(self.window),
            None => BlockShape::Latent,
        };
        let mut new = LayerCache::new(shape, capacity, block);
        if new.capacity <= self.capacity {
            return self;
        }
        new.copy(&self, shape.heads, len);
        new
    }

    /// Copies the rows of the first `len` tokens, which fit.
    fn copy(&mut self, from: &LayerCache, heads: Heads, len: usize) {
        let d = heads.head_dim;
        let (sizes, held) = (
            (from.capacity * d, self.capacity * d),
            (len - from.dropped) * d,
        );
        self.keys.copy_heads(&from.keys, sizes, held);
        if let (Some(to), Some(from)) = (&mut self.values, &from.values) {
            to.copy_heads(from, sizes, held);
        }
        self.dropped = from.dropped;
    }

    /// Whether everything is cached that tokens after the first `len` attend to.
    fn reaches_back_to(&self, len: usize) -> bool {
        let seen = self.window.map_or(len, |window| len.min(window - 1));
        self.dropped <= len - seen
    }

    /// Makes space for `new` rows after `len` tokens of text, by dropping those that no later token attends to.
    fn make_room(&mut self, heads: Heads, len: usize, new: usize) {
        let held = len - self.dropped;
        let Some(window) = self.window.filter(|_| held + new > self.capacity) else {
            return;
        };
        let kept = held.min(window - 1);
        let d = heads.head_dim;
        for rows in [&mut self.keys].into_iter().chain(&mut self.values) {
            rows.move_to_front(self.capacity * d, (held - kept) * d..held * d);
        }
        self.dropped += held - kept;
    }
}

/// What is kept of one block.
enum BlockCache {
    Attention(LayerCache),
    State(State),
}

impl BlockCache {
    fn new(shape: KvShape, capacity: usize, block: BlockShape) -> Self {
        match block {
            BlockShape::Attention(_) | BlockShape::Latent => {
                BlockCache::Attention(LayerCache::new(shape, capacity, block))
            }
            BlockShape::State(sizes) => BlockCache::State(State::zeros(sizes)),
        }
    }

    fn attention(&self) -> Option<&LayerCache> {
        match self {
            BlockCache::Attention(layer) => Some(layer),
            BlockCache::State(_) => None,
        }
    }

    fn state(&self) -> Option<&State> {
        match self {
            BlockCache::State(state) => Some(state),
            BlockCache::Attention(_) => None,
        }
    }

    fn state_mut(&mut self) -> Option<&mut State> {
        match self {
            BlockCache::State(state) => Some(state),
            BlockCache::Attention(_) => None,
        }
    }
}

/// What is kept of one text.
pub(crate) struct KvCache {
    blocks: Vec<BlockCache>,
    pub(in crate::nn) len: usize,
    storage: Storage,
    /// Where the text can be truncated to if blocks have states, shortest first; at most [`SNAPSHOTS`].
    snapshots: Vec<Snapshot>,
}

impl KvCache {
    /// Space for `capacity` tokens.
    pub fn new(shape: KvShape, capacity: usize) -> Self {
        let block = |block: &BlockShape| BlockCache::new(shape, capacity, *block);
        KvCache {
            blocks: shape.blocks.iter().map(block).collect(),
            len: 0,
            storage: shape.storage,
            snapshots: Vec::new(),
        }
    }

    /// Of no text.
    pub fn none() -> Self {
        KvCache {
            blocks: Vec::new(),
            len: 0,
            storage: Storage::F32,
            snapshots: Vec::new(),
        }
    }

    /// Appends keys and values of new rows of `qkv` to the layer, or keys alone where they are values, too. They count as cached once
    /// all layers have them.
    pub fn append(&mut self, layer: usize, heads: Heads, qkv: &[f32]) -> Piece<'_> {
        let BlockCache::Attention(held) = &mut self.blocks[layer] else {
            unreachable!("block {layer} has no attention")
        };
        let d = heads.head_dim;
        let width = match held.values {
            Some(_) => heads.qkv_width(),
            None => heads.q_width() + heads.kv_width(),
        };
        held.make_room(heads, self.len, qkv.len() / width);
        let past = self.len - held.dropped;
        for (i, row) in qkv.chunks_exact(width).enumerate() {
            let (row_keys, row_values) = row[heads.q_width()..].split_at(heads.kv_width());
            for kv in 0..heads.n_kv_head {
                let to = (kv * held.capacity + past + i) * d;
                held.keys.write(to, &row_keys[kv * d..][..d]);
                if let Some(values) = &mut held.values {
                    values.write(to, &row_values[kv * d..][..d]);
                }
            }
        }
        Piece {
            new: qkv.len() / width,
            past,
            keys: held.keys.values(),
            values: held.values.as_ref().unwrap_or(&held.keys).values(),
            capacity: held.capacity,
        }
    }

    /// The state of a block without attention, which its mixer updates.
    pub fn state(&mut self, layer: usize) -> &mut State {
        let state = self.blocks[layer].state_mut();
        state.unwrap_or_else(|| unreachable!("block {layer} has attention"))
    }

    fn states(&self) -> impl Iterator<Item = &State> {
        self.blocks.iter().filter_map(BlockCache::state)
    }

    /// Whether blocks have states, which follow the text and do not go back.
    pub fn has_states(&self) -> bool {
        self.states().next().is_some()
    }

    /// Keeps a copy of the states, so that the text can be truncated to its present length; in place of the oldest if there are
    /// [`SNAPSHOTS`].
    pub fn take_snapshot(&mut self) {
        let newest = self.snapshots.last();
        if self.len == 0
            || !self.has_states()
            || newest.is_some_and(|newest| newest.len == self.len)
        {
            return;
        }
        if self.snapshots.len() == SNAPSHOTS {
            self.snapshots.remove(0);
        }
        let snapshot = Snapshot::of(self.len, self.states());
        self.snapshots.push(snapshot);
    }

    /// Truncates to the first `len` tokens. To fewer if blocks have states: where they were last copied before that. To none if
    /// they were not, or if a sliding window has dropped tokens that are visible from there.
    fn truncate(&mut self, len: usize) {
        let mut len = len.min(self.len);
        if len < self.len && self.has_states() {
            self.snapshots.retain(|snapshot| snapshot.len <= len);
            let newest = self.snapshots.last();
            len = newest.map_or(0, |snapshot| snapshot.len);
            if let Some(snapshot) = newest {
                snapshot.restore(self.blocks.iter_mut().filter_map(BlockCache::state_mut));
            }
        }
        let mut layers = self.blocks.iter().filter_map(BlockCache::attention);
        match len > 0 && layers.all(|layer| layer.reaches_back_to(len)) {
            true => self.len = len,
            false => self.clear(),
        }
    }

    fn grown(self, shape: KvShape, capacity: usize) -> Self {
        let len = self.len;
        let blocks = self.blocks.into_iter().map(|block| match block {
            BlockCache::Attention(layer) => {
                BlockCache::Attention(layer.grown(shape, capacity, len))
            }
            state @ BlockCache::State(_) => state,
        });
        KvCache {
            blocks: blocks.collect(),
            ..self
        }
    }

    /// Copies another cache of the same dtype whose text fits this one.
    pub(super) fn copy(&mut self, other: &KvCache, heads: Heads) {
        self.len = other.len;
        self.snapshots.clear();
        for blocks in self.blocks.iter_mut().zip(&other.blocks) {
            match blocks {
                (BlockCache::Attention(to), BlockCache::Attention(from)) => {
                    to.copy(from, heads, other.len);
                }
                (BlockCache::State(to), BlockCache::State(from)) => to.copy(from),
                _ => unreachable!("caches of one model have the same blocks"),
            }
        }
    }

    /// Bytes of keys and values, and of states and their copies.
    pub fn bytes(&self) -> usize {
        let bytes = |block: &BlockCache| match block {
            BlockCache::Attention(layer) => {
                layer.keys.bytes() + layer.values.as_ref().map_or(0, HeadRows::bytes)
            }
            BlockCache::State(state) => state.bytes(),
        };
        let snapshots = self.snapshots.iter().map(Snapshot::bytes).sum::<usize>();
        self.blocks.iter().map(bytes).sum::<usize>() + snapshots
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.snapshots.clear();
        for block in &mut self.blocks {
            match block {
                BlockCache::Attention(layer) => layer.dropped = 0,
                BlockCache::State(state) => state.clear(),
            }
        }
    }
}

/// The KV cache of the previous text, kept for a text with the same prefix. It belongs to one model, whose weights must not
/// change meanwhile.
#[derive(Default)]
pub(crate) struct PrefixCache {
    /// The cached text.
    tokens: Vec<u32>,
    cache: Option<KvCache>,
}

impl PrefixCache {
    /// Larger caches are freed at the end of a text.
    const MAX_BYTES: usize = 1 << 30;
    /// Capacity grows in steps of this many tokens.
    const STEP: usize = 1024;

    /// Tokens at the beginning of `text` that are cached.
    pub(crate) fn shared(&self, text: &[u32]) -> usize {
        let alike = self.tokens.iter().zip(text).take_while(|(a, b)| a == b);
        alike.count()
    }

    /// A cache with space for `capacity` tokens that contains as much of `text` as possible, but never all of it: its last token
    /// has to be computed for the logits after it.
    pub(crate) fn reuse(&mut self, text: &[u32], capacity: usize, shape: KvShape) -> KvCache {
        let alike = self.shared(text);
        let kept = std::mem::take(self).cache;
        let Some(mut cache) = kept.filter(|cache| cache.storage == shape.storage) else {
            return KvCache::new(shape, capacity);
        };
        let len = alike.min(cache.len).min(text.len().saturating_sub(1));
        cache.truncate(len);
        cache.grown(shape, capacity)
    }

    /// Stores a cache again, with the text whose prefix it contains.
    pub(crate) fn remember(&mut self, cache: KvCache, text: &[u32]) {
        let cache = Some(cache).filter(|cache| cache.bytes() <= Self::MAX_BYTES);
        self.tokens = cache
            .as_ref()
            .map_or_else(Vec::new, |cache| text[..cache.len.min(text.len())].to_vec());
        self.cache = cache;
    }

    /// `tokens` rounded up, at most `limit`, so that a conversation does not reallocate its cache in every turn.
    pub(crate) fn room(tokens: usize, limit: usize) -> usize {
        tokens
            .div_ceil(Self::STEP)
            .saturating_mul(Self::STEP)
            .min(limit)
    }
}

/// The texts of a batch, and the pieces that the current pass appends.
pub(crate) struct Texts {
    pub(super) caches: Vec<KvCache>,
    /// (text, new tokens), in the order of the texts.
    pieces: Vec<(usize, usize)>,
}

impl Texts {
    /// One cache for each text; cached tokens are not computed again.
    pub fn new(caches: Vec<KvCache>) -> Texts {
        Texts {
            caches,
            pieces: Vec::new(),
        }
    }

    /// Starts a pass over these pieces, (text, new tokens), and concatenates their tokens in `ids`.
    pub fn take_up(&mut self, pieces: &[(usize, &[u32])], ids: &mut Vec<u32>) {
        self.pieces.clear();
        ids.clear();
        for (text, tokens) in pieces {
            self.pieces.push((*text, tokens.len()));
            ids.extend_from_slice(tokens);
        }
    }

    /// Tokens up to the end of each piece.
    pub fn ends(&self) -> Vec<usize> {
        let mut end = 0;
        let ends = self.pieces.iter().map(|(_, new)| {
            end += new;
            end
        });
        ends.collect()
    }

    /// The longest cached text, in tokens: positions start there.
    pub fn start(&self) -> usize {
        let read = self.pieces.iter().map(|(text, _)| self.caches[*text].len);
        read.max().unwrap_or(0)
    }

    /// The tokens' positions, as [`crate::kernels::positions::Positions`] of one row: returns `start`, and fills `first` so that
    /// start + row − first is the token's position in its own text. A single text needs none.
    pub fn positions(&self, first: &mut Vec<u32>) -> usize {
        let start = self.start();
        if self.pieces.len() > 1 {
            let mut row = 0;
            for (text, new) in &self.pieces {
                let shift = start + row - self.caches[*text].len;
                first.extend(std::iter::repeat_n(shift as u32, *new));
                row += new;
            }
        }
        start
    }

    /// The caches of the pieces, with the number of tokens that each gets.
    pub fn reading(&mut self) -> impl Iterator<Item = (&mut KvCache, usize)> {
        // Pieces are in the order of the texts, so one walk over the caches finds them all.
        let mut pieces = self.pieces.iter().peekable();
        self.caches
            .iter_mut()
            .enumerate()
            .filter_map(move |(at, cache)| {
                let (_, new) = pieces.next_if(|(text, _)| *text == at)?;
                Some((cache, *new))
            })
    }

    /// Counts the tokens of all pieces as cached.
    pub fn advance(&mut self) {
        for (cache, new) in self.reading() {
            cache.len += new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Rng, Stream};
    use crate::kernels::numbers::{Values, bf16};

    /// A layer with a sliding window caches, of what a token attends to, the same as a layer without one.
    #[test]
    fn a_window_drops_only_tokens_that_are_not_visible() {
        for storage in BOTH {
            window_drops(storage);
        }
    }

    const BOTH: [Storage; 2] = [Storage::F32, Storage::Bf16];

    fn window_drops(storage: Storage) {
        let heads = Heads {
            n_head: 2,
            n_kv_head: 2,
            head_dim: 3,
        };
        let (window, tokens) = (5, 3 * CHUNK);
        let shape = KvShape {
            heads,
            blocks: &[
                BlockShape::Attention(None),
                BlockShape::Attention(Some(window)),
            ],
            storage,
        };
        let mut cache = KvCache::new(shape, tokens);
        let bytes = |at: usize| cache.blocks[at].attention().unwrap().keys.bytes();
        assert!(bytes(1) < bytes(0));
        let mut rng = Rng::new(3, Stream::Test, 0, 0);
        let mut read = 0;
        while read < tokens {
            let new = (1 + rng.below(CHUNK as u64) as usize).min(tokens - read);
            let qkv: Vec<f32> = (0..new * heads.qkv_width()).map(|_| rng.normal()).collect();
            let all = copied(&cache.append(0, heads, &qkv), new, heads);
            let kept = copied(&cache.append(1, heads, &qkv), new, heads);
            // The first new token attends to window − 1 tokens before it.
            let seen = new + (window - 1).min(read);
            for (all, kept) in all.iter().zip(&kept) {
                assert_eq!(all[all.len() - seen..], kept[kept.len() - seen..]);
            }
            cache.len += new;
            read += new;
        }
    }

    /// Rows of keys and values by head, the new ones included.
    fn copied(held: &Piece, new: usize, heads: Heads) -> Vec<Vec<Vec<f32>>> {
        let d = heads.head_dim;
        let rows = |values: Values, head: usize| {
            let from = head * held.capacity * d;
            let part = values.range(from..from + (held.past + new) * d).as_f32();
            part.chunks_exact(d).map(<[f32]>::to_vec).collect()
        };
        (0..heads.n_kv_head)
            .flat_map(|head| [rows(held.keys, head), rows(held.values, head)])
            .collect()
    }

    /// Odd sizes, so that heads of bf16 begin within words.
    #[test]
    fn a_bf16_cache_has_half_the_bytes_and_rounds_to_nearest() {
        let heads = Heads {
            n_head: 3,
            n_kv_head: 3,
            head_dim: 5,
        };
        let shape = |storage| KvShape {
            heads,
            blocks: &[BlockShape::Attention(None)],
            storage,
        };
        let mut rng = Rng::new(7, Stream::Test, 0, 0);
        let qkv: Vec<f32> = (0..9 * heads.qkv_width()).map(|_| rng.normal()).collect();
        let [mut wide, mut half] = BOTH.map(|storage| KvCache::new(shape(storage), 11));
        // The last word of an odd number of bf16 values is half empty.
        assert_eq!(half.bytes(), wide.bytes() / 2 + 2 * 2);
        let exact = copied(&wide.append(0, heads, &qkv), 9, heads);
        let kept = copied(&half.append(0, heads, &qkv), 9, heads);
        let rounded = |x: &f32| bf16::from_f32(*x).to_f32();
        let numbers = |rows: &[Vec<Vec<f32>>]| rows.concat().concat();
        let expected: Vec<f32> = numbers(&exact).iter().map(rounded).collect();
        assert_eq!(numbers(&kept), expected);
        half.len = 9;
        let mut copy = KvCache::new(shape(Storage::Bf16), 11);
        copy.copy(&half, heads);
        let mut grown = copy.grown(shape(Storage::Bf16), 40);
        let row = &qkv[..heads.qkv_width()];
        let longer = copied(&grown.append(0, heads, row), 1, heads);
        for (longer, kept) in longer.iter().zip(&kept) {
            assert_eq!((longer.len(), &longer[..9]), (10, &kept[..]));
        }
    }

    /// A state that says how many tokens it has seen; snapshots after 10, 20, 30 and 40 of them.
    #[test]
    fn a_text_with_states_goes_back_to_the_newest_snapshot_of_what_it_shares() {
        let heads = Heads {
            n_head: 1,
            n_kv_head: 1,
            head_dim: 4,
        };
        let state = StateShape { conv: 2, memory: 3 };
        let blocks = [BlockShape::State(state), BlockShape::Attention(None)];
        let shape = KvShape {
            heads,
            blocks: &blocks,
            storage: Storage::F32,
        };
        let text: Vec<u32> = (0..45).collect();
        let seen = |cache: &mut KvCache| cache.state(0).memory.to_vec();
        for (shared, goes_back_to) in [
            (45_usize, 44_usize),
            (44, 44),
            (43, 40),
            (40, 40),
            (39, 30),
            (20, 20),
            (19, 0),
        ] {
            let mut prefix = PrefixCache::default();
            let mut cache = prefix.reuse(&text, 64, shape);
            let empty = cache.bytes();
            for len in [10, 20, 20, 30, 40, 44] {
                cache.state(0).memory.fill(len as f32);
                cache.len = len;
                if len != 44 {
                    cache.take_snapshot();
                }
            }
            // That of 10 tokens made place; 20 have one.
            assert_eq!(cache.bytes(), empty + SNAPSHOTS * state.bytes());
            let mut cache = cache.grown(shape, 128);
            assert_eq!(seen(&mut cache), [44.0; 3]);
            let mut copy = KvCache::new(shape, 128);
            copy.copy(&cache, heads);
            assert_eq!(copy.bytes() + SNAPSHOTS * state.bytes(), cache.bytes());
            prefix.remember(cache, &text);
            let mut other = text[..shared].to_vec();
            other.extend([99, 99]);
            let mut again = prefix.reuse(&other, 128, shape);
            assert_eq!(again.len, goes_back_to, "{shared} shared");
            assert_eq!(seen(&mut again), [goes_back_to as f32; 3]);
            let kept = [20_usize, 30, 40]
                .iter()
                .filter(|len| **len <= goes_back_to);
            assert_eq!(again.snapshots.len(), kept.count());
        }
    }

    #[test]
    fn a_kept_cache_of_another_dtype_is_not_reused() {
        let heads = Heads {
            n_head: 1,
            n_kv_head: 1,
            head_dim: 4,
        };
        let shape = |storage| KvShape {
            heads,
            blocks: &[BlockShape::Attention(None)],
            storage,
        };
        for (kept, asked) in [(BOTH[0], BOTH[1]), (BOTH[1], BOTH[0]), (BOTH[1], BOTH[1])] {
            let mut prefix = PrefixCache::default();
            let mut cache = prefix.reuse(&[1, 2, 3], 8, shape(kept));
            cache.len = 3;
            prefix.remember(cache, &[1, 2, 3]);
            let again = prefix.reuse(&[1, 2, 4], 8, shape(asked));
            assert_eq!(
                (again.len, again.storage),
                (if kept == asked { 2 } else { 0 }, asked)
            );
        }
    }
}
