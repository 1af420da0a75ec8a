package simulation

import "testing"

// Whatever fails, and whatever becomes of versions that roll out, corrections stay within their bounds.
func TestVersions_StayWithinTheirBounds(t *testing.T) { runAll(t, playVersions, 100, 50) }
