package policy_test

import "slices"

// shrink leaves out what a failing history does not need.
func shrink(h *history, fails func(*history) bool) *history {
	for again := true; again; {
		again = false
		try := func(smaller *history) {
			if fails(smaller) {
				h, again = smaller, true
			}
		}
		for i := len(h.Steps) - 1; i > 0; i-- {
			if i < len(h.Steps) {
				try(&history{h.Seed, h.Start, slices.Delete(slices.Clone(h.Steps), i, i+1)})
			}
		}
		for i := len(h.Steps) - 1; i >= 0; i-- {
			for j := len(h.Steps[i].Ops) - 1; j >= 0; j-- {
				s := h.Steps[i]
				s.Ops = slices.Delete(slices.Clone(s.Ops), j, j+1)
				try(h.with(i, s))
			}
			for j := len(h.Steps[i].Bindings) - 1; j >= 0; j-- {
				s := h.Steps[i]
				s.Bindings = slices.Delete(slices.Clone(s.Bindings), j, j+1)
				try(h.with(i, s))
			}
		}
	}
	return h
}

func (h *history) with(i int, s step) *history {
	steps := slices.Clone(h.Steps)
	steps[i] = s
	return &history{h.Seed, h.Start, steps}
}
