// Package bench is the command that measures what evaluations of policies cost.
package bench
