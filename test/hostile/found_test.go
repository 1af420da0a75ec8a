package hostile

// A finding is an attack that has found something once, and what a reader did meanwhile.
type finding struct {
	class string
	seed  uint64
	habit string
}

// found are played first, always, and are all that a short run plays: they show what was
// wrong on the parent of what closed it, or with that taken back.
var found = []finding{
	{"kind-renamed", 1, "stranger"},     // the fleet's pods vanished; metrics were for everybody
	{"resource-renamed", 1, "reviews"},  // an honest member's deployments were not found; one caller had all questions to the hub
	{"annotations-type", 32, "watches"}, // a kind was a 500 for everybody; one reader had all watches
	{"ingress-hosts", 1, "libraries"},   // everybody's verdicts were Errors; a library's change was not noticed
	{"went-back", 1, "revoked"},         // what a restored server had lost stayed
	{"large-kind", 1, "selectors"},      // a kind of more than a response may be stayed away
	{"many-events", 1, "none"},          // Events took all of a budget
	{"control-floods", 11, "none"},      // net/http logged a line for each frame
}
