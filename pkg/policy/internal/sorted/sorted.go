// Package sorted is a copy-on-write B-tree that accounts for what its copies keep alive.
package sorted

import (
	"reflect"

	"github.com/tidwall/btree"
)

// treeDegree keeps nodes small, as items are large and every state that is published
// costs a copy of the paths to what changed since.
const treeDegree = 8

// nodeBytes estimates what a node takes besides its items.
const nodeBytes = 64

// Tree is a B-tree that estimates which of its replaced nodes a former copy keeps alive.
type Tree[T any] struct {
	*btree.BTreeG[T]

	written int // items since the last ReplacedBytes
}

func New[T any](less func(a, b T) bool) *Tree[T] {
	return &Tree[T]{BTreeG: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: treeDegree})}
}

// Copy returns one that later changes do not touch.
func (t *Tree[T]) Copy() *Tree[T] { return &Tree[T]{BTreeG: t.BTreeG.Copy()} }

// Set inserts an item, or replaces the equal one.
func (t *Tree[T]) Set(item T) (old T, had bool) {
	t.written++
	return t.BTreeG.Set(item)
}

// Append is Set of an item that mostly comes after all others.
func (t *Tree[T]) Append(item T) (old T, had bool) {
	t.written++
	return t.Load(item)
}

// Delete removes an item.
func (t *Tree[T]) Delete(item T) (old T, had bool) {
	t.written++
	return t.BTreeG.Delete(item)
}

// ReplacedBytes estimates the bytes of nodes replaced since its last call: a copy from
// before keeps the old nodes, however little of them has changed.
func (t *Tree[T]) ReplacedBytes() int64 {
	nodes := min(t.written, t.Len()/treeDegree+1)
	t.written = 0
	return int64(nodes) * (nodeBytes + (2*treeDegree-1)*int64(reflect.TypeFor[T]().Size()))
}
