// Package pqueue is a priority queue whose keys can be changed and removed.
package pqueue

import "container/heap"

// Queue is a set of keys, each with a priority. It is not safe for concurrent use.
type Queue[K comparable, P any] struct{ h items[K, P] }

// New returns an empty queue in the order of compare.
func New[K comparable, P any](compare func(a, b P) int) *Queue[K, P] {
	return &Queue[K, P]{items[K, P]{compare: compare, at: map[K]int{}}}
}

// Len returns how many keys there are.
func (q *Queue[K, P]) Len() int { return len(q.h.list) }

// Has reports whether a key is there.
func (q *Queue[K, P]) Has(key K) bool {
	_, ok := q.h.at[key]
	return ok
}

// Set sets the priority of a key, which is added if it is not there.
func (q *Queue[K, P]) Set(key K, priority P) {
	if at, ok := q.h.at[key]; ok {
		q.h.list[at].priority = priority
		heap.Fix(&q.h, at)
		return
	}
	heap.Push(&q.h, item[K, P]{key, priority})
}

// Remove removes a key and reports whether it was there.
func (q *Queue[K, P]) Remove(key K) bool {
	at, ok := q.h.at[key]
	if ok {
		heap.Remove(&q.h, at)
	}
	return ok
}

// Min returns the first key and its priority; ok is false if there is none.
func (q *Queue[K, P]) Min() (key K, priority P, ok bool) {
	if len(q.h.list) == 0 {
		return key, priority, false
	}
	return q.h.list[0].key, q.h.list[0].priority, true
}

type item[K comparable, P any] struct {
	key      K
	priority P
}

// items implements heap.Interface.
type items[K comparable, P any] struct {
	list    []item[K, P]
	at      map[K]int // where a key is
	compare func(a, b P) int
}

func (h *items[K, P]) Len() int { return len(h.list) }
func (h *items[K, P]) Less(i, j int) bool {
	return h.compare(h.list[i].priority, h.list[j].priority) < 0
}

func (h *items[K, P]) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.at[h.list[i].key], h.at[h.list[j].key] = i, j
}

func (h *items[K, P]) Push(x any) {
	i, ok := x.(item[K, P])
	if !ok {
		panic("pqueue: pushed something else") // only Set pushes
	}
	h.at[i.key] = len(h.list)
	h.list = append(h.list, i)
}

func (h *items[K, P]) Pop() any {
	last := h.list[len(h.list)-1]
	h.list[len(h.list)-1] = item[K, P]{}
	h.list = h.list[:len(h.list)-1]
	delete(h.at, last.key)
	return last
}
