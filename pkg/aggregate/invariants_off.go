//go:build !invariants

package aggregate

// checkRoot is compiled in by the build tag invariants.
func checkRoot(*scopeRoot) {}

func (x *Index) checkTotals() {}
