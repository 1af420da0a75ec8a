// Package shards runs several processes of the federator command that share one fleet: a real hub, real members,
// real processes. Members move, processes are killed, cut off and rolled, and meanwhile every process has to
// answer for all members, or say what is missing, and the verdicts of policies that read the whole fleet have to be
// right once it is quiet, and never known and wrong. The leader corrects what all of them judge: also one that takes over in
// the middle of a wave loses no target and writes none twice. With two processes for each member no read misses anything when
// one is killed.
//
// make shards has six members and takes its time; make test three, and a short turn.
package shards
