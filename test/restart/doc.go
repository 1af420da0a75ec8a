// Package restart kills federator while three real members are written to, and reads through it with
// stock clients that live on: what it answers after each start is what the members have, nothing that
// they can continue is listed again, and the clients miss nothing, see nothing twice and list once.
//
// make restart kills it RESTARTS times; make test does so a few times.
package restart
