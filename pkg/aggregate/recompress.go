package aggregate

// Recompress encodes small what was encoded fast (Record.Update) and has not changed
// since the last call, and returns how many objects. It works on the caller's
// goroutine, stops early when stop is closed, and is safe beside everything else, as
// Train is. It looks at all objects of the kinds that have such: once a minute does.
func (x *Index) Recompress(stop <-chan struct{}) (recompressed int) {
	x.codecs.training.Lock()
	defer x.codecs.training.Unlock()
	snap := x.Snapshot()
	for _, k := range x.codecs.all() {
		kind, codec := k.kind, k.kindCodec
		// Those that come from here on count for the next time, as do those left, and
		// items on their way that no snapshot has yet.
		was := codec.pendingBodies.Swap(0)
		if was == 0 && !codec.recheck {
			continue
		}
		t, left, done := x.reencode(snap, kind, codec, stop)
		if recompressed += t.Objects; !done {
			codec.pendingBodies.Add(was)
			return recompressed
		}
		codec.pendingBodies.Add(int64(left))
		codec.recheck, codec.recompressedTo = was > 0, snap.revision
	}
	return recompressed
}

// reencode encodes small, with the current dictionary, bodies of other dictionaries
// and fast ones that have not changed of late. It returns how many fast ones it left. Content and
// revisions stay, so no reader can tell but by the memory.
func (x *Index) reencode(snap *Snapshot, kind Kind, codec *kindCodec, stop <-chan struct{}) (t Training, left int, done bool) {
	t.Kind = kind
	enc := codec.current.Load()
	var raw, scratch []byte
	done = true
	for r := range snap.kindScopes(kind, "") {
		r.objects.Scan(func(e *entry) bool {
			select {
			case <-stop:
				done = false
				return false
			default:
			}
			old := e.body.Load()
			switch {
			case old.dict == enc.small:
				return true
			case old.dict == enc.fast && e.revision > codec.recompressedTo:
				left++
				return true
			}
			var err error
			if raw, err = old.decode(raw[:0]); err != nil {
				return true // it stays as it is, decodable or not
			}
			var next *body
			next, scratch = enc.encode(raw, scratch)
			x.replaceBody(scopeKey{r.member, kind}, e, old, next)
			t.Objects++
			t.Before += int64(len(old.data))
			t.After += int64(len(next.data))
			return true
		})
		if !done {
			break
		}
	}
	return t, left, done
}

// replaceBody swaps an entry's body and keeps the scope's accounts right. Whether
// the scope has a writer may change at any time: without one the account is
// x.mu's, with one the writer's.
func (x *Index) replaceBody(k scopeKey, e *entry, old, next *body) {
	for {
		x.mu.Lock()
		w := x.writers[k]
		if w == nil {
			if e.body.CompareAndSwap(old, next) {
				if root, ok := x.scopes.Get(pivotScope(k.member, k.kind)); ok {
					root.resize(e, old, next)
				}
			}
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		if w.replaceBody(e, old, next) {
			return
		}
	}
}

// replaceBody reports false when the writer has closed meanwhile.
func (s *Scope) replaceBody(e *entry, old, next *body) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if !e.body.CompareAndSwap(old, next) {
		return true
	}
	if held, ok := s.root.objects.Get(e); ok && held == e {
		s.root.bytes += next.size() - old.size()
	}
	s.last.resize(e, old, next)
	return true
}

// resize notes that the body of an entry, if the root has it, became smaller.
func (r *scopeRoot) resize(e *entry, old, next *body) {
	if held, ok := r.objects.Get(e); ok && held == e {
		r.recoded.Add(next.size() - old.size())
	}
}
