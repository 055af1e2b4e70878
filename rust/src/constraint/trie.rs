//! The tokens as a trie, laid out in the order of a walk: a node, then all that is below it. What is cut off is skipped
//! by its size, so a walk is one pass over an array.

#[derive(Clone, Copy)]
pub struct Node {
    pub token: u32, // NONE: no token ends here
    pub size: u32,  // nodes of its subtree, itself among them
    pub depth: u16, // bytes up to it
    pub byte: u8,
}

pub const NONE: u32 = u32::MAX;

pub struct Trie {
    pub nodes: Vec<Node>,
    pub max_depth: usize,
}

impl Trie {
    /// Of tokens with their bytes, none longer than 65535; those without bytes are left out. Of tokens with the same
    /// bytes each has a node.
    pub fn new<'a>(tokens: impl Iterator<Item = (u32, &'a [u8])>) -> Trie {
        let mut sorted: Vec<(&[u8], u32)> =
            tokens.filter(|t| !t.1.is_empty()).map(|(id, bytes)| (bytes, id)).collect();
        sorted.sort_unstable();
        let mut trie = Trie { nodes: Vec::with_capacity(4 * sorted.len()), max_depth: 0 };
        let mut path: Vec<usize> = Vec::new(); // the nodes above
        let mut last: &[u8] = &[];
        for (bytes, token) in sorted {
            let common = last.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            let common = common.min(bytes.len() - 1); // the last byte has a node of its own
            trie.close(&mut path, common);
            for (depth, &byte) in bytes.iter().enumerate().skip(common) {
                path.push(trie.nodes.len());
                trie.nodes.push(Node { token: NONE, size: 0, depth: depth as u16 + 1, byte });
            }
            if let Some(node) = trie.nodes.last_mut() {
                node.token = token;
            }
            trie.max_depth = trie.max_depth.max(bytes.len());
            last = bytes;
        }
        trie.close(&mut path, 0);
        trie
    }

    fn close(&mut self, path: &mut Vec<usize>, depth: usize) {
        for at in path.drain(depth..) {
            self.nodes[at].size = (self.nodes.len() - at) as u32;
        }
    }
}
