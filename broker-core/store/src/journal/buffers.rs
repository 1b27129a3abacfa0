//! Buffers for frames. The log takes them, and returns them when the cache drops the written bytes:
//! new memory for every group costs as much as filling it.

/// Maximum bytes of unused memory.
const UNUSED_BYTES_MAX: usize = 4 << 20;

/// Unused memory.
#[derive(Default)]
pub(super) struct Buffers {
    unused: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// An empty buffer with a capacity of at least `bytes`, and about twice that at most.
    pub(super) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let fits = |(_, buffer): &(usize, &Vec<u8>)| {
            (bytes..=bytes.saturating_mul(2)).contains(&buffer.capacity())
        };
        let fitting = self.unused.iter().enumerate().filter(fits);
        let fitting = fitting.min_by_key(|(_, buffer)| buffer.capacity());
        if let Some((place, _)) = fitting {
            let buffer = self.unused.remove(place);
            self.bytes -= buffer.capacity();
            return buffer;
        }
        // Round up a little, so that the buffer fits later requests of about this size.
        Vec::with_capacity(bytes.next_multiple_of((bytes / 8).next_power_of_two()))
    }

    /// Returns a buffer. The oldest unused buffers make room for it.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 || buffer.capacity() > UNUSED_BYTES_MAX {
            return;
        }
        buffer.clear();
        self.bytes += buffer.capacity();
        self.unused.push(buffer);
        while self.bytes > UNUSED_BYTES_MAX {
            self.bytes -= self.unused.remove(0).capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_returns_given_memory_of_a_fitting_size() {
        let mut buffers = Buffers::default();
        let first = buffers.take(100_000);
        let capacity = first.capacity();
        assert!((100_000..=200_000).contains(&capacity));
        buffers.give(first);
        assert!(buffers.take(capacity + 1).capacity() > capacity, "it is too small");
        let small = capacity / 2 - 1;
        assert!(buffers.take(small).capacity() < capacity, "it would be mostly unused");
        assert_eq!(buffers.take(capacity / 2).capacity(), capacity);
        assert_eq!(buffers.bytes, 0);
    }

    #[test]
    fn unused_buffers_are_bounded() {
        let mut buffers = Buffers::default();
        for _ in 0..10 {
            buffers.give(Vec::with_capacity(1 << 20));
        }
        assert!(buffers.bytes <= UNUSED_BYTES_MAX, "{}", buffers.bytes);
        assert_eq!(buffers.unused.iter().map(Vec::capacity).sum::<usize>(), buffers.bytes);
    }
}
