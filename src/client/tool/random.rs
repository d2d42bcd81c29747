//! Random bytes for test data, fast enough to fill gigabytes.

/// The generator xoshiro256++ of Blackman and Vigna (prng.di.unimi.it), seeded by SplitMix64.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator seeded by the operating system.
    pub fn from_system() -> Self {
        let mut seed = [0u8; 8];
        // Uniqueness between runs is wanted, not secrecy: the clock does where the system cannot.
        if getrandom::fill(&mut seed).is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            seed = (now.unwrap_or_default().as_nanos() as u64).to_ne_bytes();
        }
        Self::new(u64::from_ne_bytes(seed))
    }

    /// A generator whose sequence `seed` determines.
    pub fn new(mut seed: u64) -> Self {
        let state = std::array::from_fn(|_| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for word in words {
            *word = self.next().to_le_bytes();
        }
        let last = self.next().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First outputs of xoshiro256++ from the state 1, 2, 3, 4, by its reference definition.
    #[test]
    fn sequence() {
        let mut random = Random { state: [1, 2, 3, 4] };
        assert_eq!([random.next(), random.next(), random.next()], [41943041, 58720359, 3588806011781223]);
    }

    #[test]
    fn fills_any_length() {
        let mut random = Random::new(7);
        for length in [0, 1, 7, 8, 9, 4096] {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            assert!(length < 16 || bytes.iter().any(|&b| b != bytes[0]));
        }
        let (mut a, mut b) = ([0; 16], [0; 16]);
        random.fill(&mut a);
        random.fill(&mut b);
        assert_ne!(a, b);
    }
}
