package exchange

// What is the same on both sides.
const (
	defaultMaxRecord = 4 << 20
	// maxReason bounds why a scope has its state.
	maxReason = 1 << 10
	// maxControl bounds frames that are no record: what is known of a member is the largest.
	maxControl = 4 << 20
	// maxName bounds the names of members and their UIDs.
	maxName = 1 << 10
	// maxKinds bounds the scopes of a member.
	maxKinds = 10_000
)
