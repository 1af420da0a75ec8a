// Package audit compares what is held of a scope with what its member lists at the same
// resourceVersion, and says which scope is to be compared when.
//
// A [Comparison] is given the items of a list, in any order and page by page, and a snapshot that
// has applied all events up to the list's resourceVersion. Every item must be in the snapshot with
// its UID and resourceVersion, with equal content where the item has some, and nothing else may
// be; what is left out of the snapshot must be of the version that was left out. So nothing that is in
// flight can differ. What differs is a [Difference] only once a second
// list at the same resourceVersion says the same: [Confirm].
//
// A [Plan] has two tiers. Kinds that decide on security, and those that policies read, are in the
// first; the others have a longer interval, which is shorter for those that change much. What is due is
// spread over the last half of the interval, so that the members and kinds that were listed at one
// time are not audited at one time.
//
// A [Budget] bounds requests and bytes a second. It goes into debt, since the size of a response is
// known once it has come: what comes next waits.
//
// The package reads no clock, starts no goroutine and makes no request: its results depend on its
// arguments alone.
package audit
