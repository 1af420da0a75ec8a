// Package faults is a matrix: what breaks between and beneath federator, its hub and its members,
// and what comes of it. federator is the command, built and started; hub and members are real
// control planes with an etcd each, reached through proxies that cut, tear, delay and lie. Each row
// is one fault, played while the members are written to, while readers list and watch through
// federator, and while a policy corrects what is written.
//
// The columns of a row:
//
//   - index: whether what federator answers equals fresh lists around the proxies, all kinds of all
//     members: ref, uid, resourceVersion and body;
//   - verdicts: whether its violations equal a full evaluation of the same lists;
//   - lists: what was listed again of the members for it, by cause;
//   - exact after: from the fault's end until the index was equal;
//   - readers: what lists and watches through federator saw from the fault's beginning on. An
//     answer may be refused; one that is given is never empty, and never mixed (see reader);
//   - writes: what was written to the members by federator, from their audit logs.
//
// What a machine does not permit, such as a cgroup of its own or the
// mount of a small disk, is found out by the run, and said.
//
// go test plays a few quick rows. `make faults` plays all, for as long as they say, and FAULTS=write
// writes README.md, too. FAULTS_ROWS is a regular expression of the rows to play, and SEED repeats
// what was drawn.
package faults
