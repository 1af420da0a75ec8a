// Package clitest runs commands of federator in tests, on fleets of simulated or real
// members, on manifests and on policies that are written for it.
package clitest
