package simulation

import "math/rand/v2"

// choices are the numbers that a schedule is made of. 0 is always the most ordinary choice:
// a schedule shrinks towards nothing unusual.
type choices struct {
	random *rand.Rand // nil: replay only
	replay []uint32
	made   []uint32
}

func seeded(seed uint64) *choices {
	return &choices{random: rand.New(rand.NewPCG(seed, 0x5eed))}
}

// below returns a number below n.
func (c *choices) below(n int) int {
	v := uint32(0)
	switch at := len(c.made); {
	case n <= 1:
	case c.random != nil:
		v = uint32(c.random.IntN(n))
	case at < len(c.replay):
		v = c.replay[at] % uint32(n)
	}
	c.made = append(c.made, v)
	return int(v)
}

// oneIn reports an event of which one in n happens.
func (c *choices) oneIn(n int) bool { return c.below(n) == n-1 }

// between returns a number from low to high.
func (c *choices) between(low, high int) int { return low + c.below(high-low+1) }

// option is something that may happen next.
type option struct {
	weight int
	name   string
	do     func()
}

// pick picks one of some options, in proportion to their weights.
func (c *choices) pick(options []option) *option {
	total := 0
	for _, o := range options {
		total += o.weight
	}
	at := c.below(total)
	for i := range options {
		if at -= options[i].weight; at < 0 {
			return &options[i]
		}
	}
	panic("simulation: no options")
}
