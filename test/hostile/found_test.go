package hostile

// found are attacks that have found something once: they are played first, always.
var found = []struct {
	class string
	seed  uint64
}{
	{"kind-renamed", 1},     // the fleet's pods vanished: of two kinds of one resource the other was read
	{"resource-renamed", 1}, // an honest member's deployments were not found, as if it did not serve them
}
