// Package enforcement wires what corrects a fleet from the objects of a hub: PolicySources
// and FleetPolicies, the evaluation of policies, corrections, and the election of the one
// process that writes. The command and the simulation run the same wiring: what it talks to
// (the hub, the members, the index) is given to it.
package enforcement
