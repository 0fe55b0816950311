"""Take the README's picture: the report of the demo, as a browser shows it.

    python docs/report_picture.py

Needs Chromium (Debian's package chromium) and Pillow, which comes with matplotlib.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from driftree.cli.demo import Race

N_ROWS, SEED = 100_000, 1
SIZE = (1280, 1600)
PICTURE = Path(__file__).parent / "pictures" / "report.png"


def main() -> None:
    """Run the demo, open its report, and keep what is seen."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("Chromium is needed: apt install chromium")
    race = Race(N_ROWS, SEED)
    for _ in race.run():
        pass
    with TemporaryDirectory() as folder:
        page, shot = Path(folder) / "report.html", Path(folder) / "shot.png"
        race.report(page, f"driftree demo --rows {N_ROWS} --seed {SEED}")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        size = f"--window-size={SIZE[0]},{SIZE[1]}"
        subprocess.run(
            [browser, *flags, size, f"--screenshot={shot}", page.as_uri()],
            check=True,
            capture_output=True,
        )
        PICTURE.parent.mkdir(exist_ok=True)
        Image.open(shot).convert("RGB").quantize(128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
