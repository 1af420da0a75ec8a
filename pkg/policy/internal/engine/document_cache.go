package engine

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/module"
)

// docCache keeps the documents that several evaluations of one snapshot read, for as
// long as they go on: what is quiet holds none. It is below the recording: what is
// served from it has been recorded.
type docCache struct {
	values map[docKey]cachedDoc
	bytes  int64
}

type docKey struct {
	section    byte
	visibility uint32
	pkg        *module.Package // of objects, which are pruned to what it reads
	a, b, c    string
}

type cachedDoc struct {
	value ast.Value
	bytes int64
}

const maxCached = 16 << 20 // bytes of text in one worker's cache

// cached returns a document, made once while the snapshot stays and the cache has
// room, and charges the evaluation for it.
func (ev *evaluation) cached(k docKey, build func() (ast.Value, error)) (ast.Value, error) {
	k.visibility = ev.b.visible.ID
	c := &ev.w.docs
	if ev.w.round != ev.w.e.round || c.bytes > maxCached || c.values == nil {
		ev.w.round = ev.w.e.round
		*c = docCache{values: map[docKey]cachedDoc{}}
	}
	if d, ok := c.values[k]; ok {
		return d.value, ev.charge(d.bytes)
	}
	before := ev.bytes
	v, err := build()
	if err == nil {
		d := cachedDoc{value: v, bytes: ev.bytes - before}
		c.values[k] = d
		c.bytes += d.bytes + 64
	}
	return v, err
}

// forget drops what is cached.
func (w *worker) forget() { w.docs = docCache{} }

func (ev *evaluation) charge(n int64) error {
	if ev.bytes += n; ev.bytes > ev.w.e.opts.Limits.Read {
		return fmt.Errorf("it reads more than %d bytes", ev.w.e.opts.Limits.Read)
	}
	return nil
}
