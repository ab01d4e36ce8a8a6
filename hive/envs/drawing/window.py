"""A window that shows the pictures of an environment, by pygame. Its size can be changed; Escape, q or its cross closes
it."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.distribution import pip_install
from hive.errors import UsageError

INVISIBLE = ("dummy", "offscreen", "evdev")  # drivers of SDL without a window
RECORD = "check DISPLAY and WAYLAND_DISPLAY, or record a video instead: -o FILE.mp4"
LEAST_SIDE = 480  # pixels: smaller pictures, such as Atari's of 160 x 210, are enlarged by a whole factor


class Window:
    """Opens with the first picture; `show` waits so that pictures follow each other `fps` times a second.

    closed: whether the user has closed it.
    """

    def __init__(self, title: str, fps: float) -> None:
        self.title = title
        self.fps = fps
        self.closed = False
        self._pygame: Any = None

    def show(self, pixels: NDArray[np.uint8]) -> None:
        """Show uint8 [height, width, 3]. Raises UsageError if no window can be opened."""
        if self._pygame is None:
            self._open(pixels.shape[1], pixels.shape[0])
        pygame, screen = self._pygame, self._pygame.display.get_surface()
        width, height = screen.get_size()
        scale = min(width / pixels.shape[1], height / pixels.shape[0])
        size = int(pixels.shape[1] * scale), int(pixels.shape[0] * scale)
        picture = pygame.transform.scale(pygame.surfarray.make_surface(pixels.swapaxes(0, 1)), size)
        screen.fill((0, 0, 0))
        screen.blit(picture, ((width - size[0]) // 2, (height - size[1]) // 2))
        pygame.display.flip()
        self.poll()
        self._clock.tick(self.fps)

    def poll(self) -> None:
        """Look whether the user has closed it. It may also be the window of an environment, which pygame then has."""
        pygame = sys.modules.get("pygame")
        if pygame is None or not pygame.display.get_init():
            return
        keys = pygame.K_ESCAPE, pygame.K_q
        for event in pygame.event.get((pygame.QUIT, pygame.KEYDOWN), pump=self._pygame is not None):
            self.closed |= event.type == pygame.QUIT or event.key in keys

    def close(self) -> None:
        """Close the window. Does nothing if it was never opened."""
        if self._pygame is not None:
            self._pygame.display.quit()

    def _open(self, width: int, height: int) -> None:
        try:
            import pygame
        except ImportError as error:
            raise UsageError("a window needs pygame", hint=pip_install("video")) from error
        factor = max(1, -(-LEAST_SIDE // max(width, height)))
        try:
            pygame.display.init()
            pygame.display.set_mode((width * factor, height * factor), pygame.RESIZABLE)
        except pygame.error as error:
            raise UsageError(f"no window can be opened: {error}", hint=RECORD) from error
        driver = pygame.display.get_driver()
        if driver in INVISIBLE and os.environ.get("SDL_VIDEODRIVER") != driver:  # SDL's last resorts
            pygame.display.quit()
            raise UsageError("no window can be opened: the display does not respond", hint=RECORD)
        pygame.display.set_caption(self.title)
        self._pygame, self._clock = pygame, pygame.time.Clock()
