// Package trigger tells one goroutine that there is something to do.
package trigger

// Trigger tells its receiver that something changed since it last received. However
// often it is fired meanwhile, it is received once. It is safe for concurrent use.
type Trigger chan struct{}

// New returns a Trigger that was not fired.
func New() Trigger { return make(Trigger, 1) }

// Fire never blocks.
func (t Trigger) Fire() {
	select {
	case t <- struct{}{}:
	default:
	}
}
