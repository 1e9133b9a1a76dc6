"""The `armarium` command for these tests."""

from support.armarium_command import armarium, as_the_user, environ, home, project, quick, start

__all__ = ["armarium", "as_the_user", "environ", "home", "project", "quick", "start"]
