"""The rules, one a file. Modules with a leading underscore hold what several of them share."""
