package aggregate

// Recompress encodes small what was encoded fast (Record.Update) and has not changed since
// the last call, and returns the number of objects. It works on the caller's goroutine,
// stops early when stop is closed, and is safe for concurrent use with everything else, as
// Train is. It iterates over all objects of the kinds that have fast bodies: once a minute
// suffices.
func (x *Index) Recompress(stop <-chan struct{}) (recompressed int) {
	x.codecs.training.Lock()
	defer x.codecs.training.Unlock()
	snap := x.Snapshot()
	for _, codec := range x.codecs.all() {
		// Bodies from here on are left for the next call, as are those that changed
		// recently, and items that are not in a snapshot yet.
		was := codec.pendingBodies.Swap(0)
		if was == 0 && !codec.recheck {
			continue
		}
		t, left, done := x.reencode(snap, codec, stop)
		if recompressed += t.Objects; !done {
			codec.pendingBodies.Add(was)
			return recompressed
		}
		codec.pendingBodies.Add(int64(left))
		codec.recheck, codec.recompressedTo = was > 0, snap.revision
	}
	return recompressed
}

// reencode encodes small, with the current dictionary, bodies of other dictionaries and fast
// ones that have not changed recently. It returns the number of fast ones left. Content and
// revisions stay, so readers see no difference.
func (x *Index) reencode(snap *Snapshot, codec *kindCodec, stop <-chan struct{}) (t Training, left int, done bool) {
	t.Kind = codec.kind
	enc := codec.current.Load()
	var raw, scratch []byte
	done = true
	for r := range snap.kindScopes(codec.kind, "") {
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
				return true // leave it unchanged, decodable or not
			}
			var next *body
			next, scratch = enc.encode(raw, scratch)
			x.replaceBody(codec, r.scopeID, e, old, next)
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

// replaceBody replaces an entry's body and updates the scope's account. A scope may get or
// lose its writer at any time: the account is guarded by x.mu without a writer, and by the
// writer's mu, too, with one.
func (x *Index) replaceBody(codec *kindCodec, id *scopeID, e *entry, old, next *body) {
	for {
		x.mu.Lock()
		root, ok := x.scopes.Get(pivotScope(id.member, id.kind))
		if !ok || root.writer == nil {
			if e.body.CompareAndSwap(old, next) && ok {
				root.resize(codec, e, old, next)
			}
			x.mu.Unlock()
			return
		}
		w := root.writer
		x.mu.Unlock()
		if w.replaceBody(e, old, next) {
			return
		}
	}
}

// replaceBody reports false when the writer has been closed in the meantime.
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
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if root, ok := x.scopes.Get(s.last); ok && root.writer == s { // the member is still there
		root.resize(s.codec, e, old, next)
	}
	return true
}

// resize records that the body of an entry, if it is in the root, became smaller. The index's
// lock must be held.
func (r *scopeRoot) resize(codec *kindCodec, e *entry, old, next *body) {
	if held, ok := r.objects.Get(e); ok && held == e {
		r.recoded.Add(next.size() - old.size())
		codec.held.bytes += next.size() - old.size()
	}
}
