// Package reach is what a caller may read of the members of a fleet that several processes share.
//
// What is on the hub each of them holds, as Actions and Plans; what of it a caller may see follows from what it may read in the
// members that this is about. Each process says that of the members that it judges: it knows their UIDs, and the
// resources that their objects were read under.
package reach
