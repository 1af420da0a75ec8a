// Bench measures federator against what a user would use instead, in one run
// on one machine, and prints a table:
//
//	go run ./test/bench [-run REGEXP] [-json FILE]
//
// Members are real kube-apiservers (test/kube) where the figure is about
// ingest, and simulated ones in a process of their own (test/sim) where it is
// about size. Figures that concern the memory or CPU of a client are taken in
// a child process that does nothing else. A ratio says how many times better
// than the baseline a figure is: above 1 is better. Nothing here fails because
// it is slow.
package main
