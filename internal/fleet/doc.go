// Package fleet wires the index and what writes it: the sources of members, their manager,
// and the training of dictionaries.
//
// serve runs a fleet for as long as the process lives; commands that need no server run
// one until each member has synced or been given up on.
package fleet
