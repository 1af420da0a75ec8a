// Package hubrequests makes what a person asks of the hub, in that person's name and with that
// person's credentials: Approvals, rollbacks, suspensions. The commands and the web UI share it.
package hubrequests
