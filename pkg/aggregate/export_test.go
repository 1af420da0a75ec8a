package aggregate

// EarlySamples is how many bodies of a kind are kept until it has a dictionary.
func EarlySamples(x *Index, kind Kind) (n int) {
	for _, k := range x.codecs.all() {
		if k.kind == kind {
			k.mu.Lock()
			n += len(k.early)
			k.mu.Unlock()
		}
	}
	return n
}
