// Package assignment decides which process holds which member, from what the members were measured to cost. It is a pure
// function: equal inputs give equal outputs, in every process.
//
// # Load
//
// A member costs three things that do not follow from each other: bytes held, changes a second, and CPU of evaluations. A
// process ends at the one that it runs out of first. So each dimension is divided by what the whole fleet has of it, a
// process's height is the largest of its sums, and the highest process is what counts: a sum over the dimensions, or the count
// of members, would call two processes equal of which one has all the memory and the other all the CPU. A member that was never
// measured is taken for the median of those that were. However idle, a member costs a little in each dimension (its
// connection, watches and scopes), so that an idle fleet is spread, too.
//
// Who judges a member pays all three; a standby holds and follows it, and evaluates nothing.
//
// # Placing and moving
//
// A member without a holder goes to the process that rendezvous hashing puts first, among those that stay within a bound of
// the mean: so it comes back to where it was, whose disk may have it still. A member that has a holder moves only from the
// highest process, only while that is higher than Threshold times the mean, and only where at least half of what moves is
// gained. Each move lowers the two heights that it touches below the highest, so that moves end.
package assignment
