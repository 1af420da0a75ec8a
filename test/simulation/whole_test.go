package simulation

import "testing"

// Whatever fails, whole processes stay within the bounds of corrections, and say what is so.
func TestWhole_StaysWithinItsBounds(t *testing.T) { runAll(t, playWhole, 100, 60) }
